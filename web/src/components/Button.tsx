import { LoaderCircle } from "lucide-react";
import type { ComponentProps } from "react";

type Size = "usual" | "small" | "icon";

const SIZES: Record<Size, string> = {
  // As large as a finger where one is used.
  usual: "min-h-9 px-3 pointer-coarse:min-h-11",
  small: "min-h-7 px-2 text-xs pointer-coarse:min-h-11",
  icon: "min-h-7 min-w-7",
};

type Variant = "primary" | "plain" | "quiet" | "danger";

const VARIANTS: Record<Variant, string> = {
  primary: "bg-accent text-on-accent hover:bg-accent-strong border-transparent",
  plain: "bg-surface text-ink border-line-control hover:bg-accent-soft",
  quiet: "bg-transparent text-muted border-transparent hover:bg-accent-soft hover:text-ink",
  danger: "bg-surface text-bad border-line-control hover:border-bad hover:bg-bad-soft",
};

interface Props extends ComponentProps<"button"> {
  variant?: Variant;
  small?: boolean;
  isIcon?: boolean;
  wide?: boolean;
  /** The action is in progress; the button is disabled. */
  busy?: boolean;
}

export function Button({
  variant = "plain",
  small,
  isIcon,
  wide,
  busy,
  className = "",
  children,
  disabled,
  ...rest
}: Props) {
  return (
    <button
      type="button"
      {...rest}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      className={`inline-flex items-center justify-center gap-2 rounded-md border font-medium whitespace-nowrap disabled:opacity-60 ${VARIANTS[variant]} ${SIZES[isIcon ? "icon" : small ? "small" : "usual"]} ${wide ? "w-full" : ""} ${className}`}
    >
      {busy && <LoaderCircle aria-hidden className="size-4 animate-spin" />}
      {children}
    </button>
  );
}

/** A link that looks like a button. */
export const LINK_BUTTON =
  "inline-flex min-h-7 items-center gap-2 rounded-md border border-line-control bg-surface px-2 text-xs font-medium whitespace-nowrap hover:bg-accent-soft";

/** A button with only an icon; `label` describes its action. */
export function IconButton({ label, ...rest }: Props & { label: string }) {
  return <Button variant="quiet" isIcon aria-label={label} title={label} {...rest} />;
}
