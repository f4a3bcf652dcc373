/** The theme: light, dark or system. Stored in the browser. */
import { create } from "zustand";

export type Theme = "system" | "light" | "dark";

const KEY = "toolcrib-theme";

interface Choice {
  theme: Theme;
  choose: (theme: Theme) => void;
}

export const useTheme = create<Choice>((set) => ({
  theme: storedTheme(),
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

function storedTheme(): Theme {
  const stored = localStorage.getItem(KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}
