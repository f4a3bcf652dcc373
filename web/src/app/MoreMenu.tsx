/** The screens that have no place in the bar of a phone. */
import { Ellipsis } from "lucide-react";
import { useLocation } from "wouter";
import { Menu, MenuItem } from "../components/Menu";
import type { Screen } from "./screens";

export function MoreMenu({ workspaceId, screens }: { workspaceId: string; screens: readonly Screen[] }) {
  const [, go] = useLocation();
  return (
    <Menu
      label="More screens"
      trigger={
        <span className="flex flex-col items-center gap-0.5 text-2xs">
          <Ellipsis aria-hidden className="size-5" />
          More
        </span>
      }
    >
      {screens.map(({ name, label, icon: Icon }) => (
        <MenuItem key={name} onSelect={() => go(`/w/${workspaceId}/${name}`)}>
          <Icon aria-hidden className="size-4 text-muted" />
          <span className="py-2 md:py-0">{label}</span>
        </MenuItem>
      ))}
    </Menu>
  );
}
