import { LoaderCircle } from "lucide-react";
import type { ButtonHTMLAttributes } from "react";

type Size = "usual" | "small" | "icon";

const SIZES: Record<Size, string> = {
  usual: "min-h-9 px-3.5",
  small: "min-h-7 px-2 text-xs",
  icon: "min-h-7 min-w-7",
};

type Variant = "primary" | "plain" | "quiet" | "danger";

const VARIANTS: Record<Variant, string> = {
  primary: "bg-accent text-on-accent hover:bg-accent-strong border-transparent",
  plain: "bg-surface text-ink border-line-strong hover:bg-accent-soft",
  quiet: "bg-transparent text-muted border-transparent hover:bg-accent-soft hover:text-ink",
  danger: "bg-surface text-bad border-bad hover:bg-bad-soft",
};

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
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
      className={`inline-flex items-center justify-center gap-1.5 rounded-md border font-medium whitespace-nowrap disabled:opacity-60 ${VARIANTS[variant]} ${SIZES[isIcon ? "icon" : small ? "small" : "usual"]} ${wide ? "w-full" : ""} ${className}`}
    >
      {busy && <LoaderCircle aria-hidden className="size-4 animate-spin" />}
      {children}
    </button>
  );
}

/** A button with only an icon; `label` describes its action. */
export function IconButton({ label, ...rest }: Props & { label: string }) {
  return <Button variant="quiet" isIcon aria-label={label} title={label} {...rest} />;
}
