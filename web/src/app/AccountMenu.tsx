/** Account menu: user name, theme, keyboard shortcuts and logout. */
import { CircleUserRound } from "lucide-react";
import { Menu, MenuChoice, MenuItem, MenuLabel, MenuLine } from "../components/Menu";
import { useLogout, useMe } from "./me";
import { useShortcutList } from "./shortcuts";
import { type Theme, useTheme } from "./theme";

const THEMES: Record<Theme, string> = { system: "System", light: "Light", dark: "Dark" };

export function AccountMenu() {
  const me = useMe();
  const logout = useLogout();
  const { theme, choose } = useTheme();
  const showShortcuts = useShortcutList((list) => list.show);
  return (
    <Menu label="Account and appearance" trigger={<CircleUserRound aria-hidden className="size-5" />}>
      <MenuLabel>{me.data?.full_name ?? me.data?.email ?? ""}</MenuLabel>
      <MenuLine />
      <MenuChoice label="Theme" value={theme} onChange={(value) => choose(value as Theme)} options={THEMES} />
      <MenuLine />
      <MenuItem onSelect={showShortcuts}>Keyboard shortcuts</MenuItem>
      <MenuItem onSelect={() => logout.mutate()}>Log out</MenuItem>
    </Menu>
  );
}
