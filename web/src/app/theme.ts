/** Light, dark, or as the system says; remembered by the browser. */
import { create } from "zustand";

export type Theme = "system" | "light" | "dark";

const KEY = "toolcrib-theme";

interface Choice {
  theme: Theme;
  choose: (theme: Theme) => void;
}

export const useTheme = create<Choice>((set) => ({
  theme: remembered(),
  choose: (theme) => {
    if (theme === "system") {
      localStorage.removeItem(KEY);
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem(KEY, theme);
      document.documentElement.dataset.theme = theme;
    }
    set({ theme });
  },
}));

function remembered(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}
