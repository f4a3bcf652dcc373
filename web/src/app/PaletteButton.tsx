/** Opens the command palette, for people who do not know its key yet. */
import { Search } from "lucide-react";
import { PALETTE_KEY, usePalette } from "../palette/openPalette";

export function PaletteButton() {
  const toggle = usePalette((palette) => palette.toggle);
  return (
    <button
      type="button"
      onClick={toggle}
      className="inline-flex h-9 min-w-9 items-center justify-center gap-2 rounded-md text-sm text-muted hover:bg-accent-soft hover:text-ink md:my-1 md:h-8 md:justify-start md:border md:border-line md:bg-ground md:px-3"
    >
      <Search aria-hidden className="size-5 md:size-4" />
      <span className="grow text-left max-md:sr-only">Jump to…</span>
      <kbd aria-hidden className="hidden font-sans text-xs md:inline">
        {PALETTE_KEY}
      </kbd>
    </button>
  );
}
