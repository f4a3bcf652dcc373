/** The head of a page outside of a workspace. */
import { ArrowLeft } from "lucide-react";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { AccountMenu } from "./AccountMenu";
import { Logo } from "./Logo";

interface Props {
  title: string;
  /** Links and buttons beside the title. */
  aside?: ReactNode;
  isHome?: boolean;
}

export function PageHead({ title, aside, isHome }: Props) {
  return (
    <header className="flex items-center gap-3">
      {isHome ? (
        <Logo />
      ) : (
        <Link
          href="/"
          aria-label="All workspaces"
          className="inline-flex size-9 items-center justify-center rounded-md text-muted hover:bg-accent-soft hover:text-ink"
        >
          <ArrowLeft aria-hidden className="size-5" />
        </Link>
      )}
      <h1 className="grow text-xl font-semibold tracking-tight">{title}</h1>
      {aside}
      <AccountMenu />
    </header>
  );
}
