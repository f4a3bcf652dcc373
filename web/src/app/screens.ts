/** The screens of a workspace, in the order of the navigation. Each is loaded when it is first opened. */
import { FolderTree, History, type LucideIcon, MessageSquare, ShieldCheck, SlidersHorizontal } from "lucide-react";
import { type ComponentType, type LazyExoticComponent, lazy } from "react";

export interface ScreenProps {
  workspaceId: string;
}

export interface Screen {
  /** The part of the address after the workspace, and the name in tests. */
  name: string;
  label: string;
  icon: LucideIcon;
  /** `g`, then this key, goes there. */
  key: string;
  view: LazyExoticComponent<ComponentType<ScreenProps>>;
}

export const SCREENS: readonly Screen[] = [
  {
    name: "chat",
    label: "Chat",
    icon: MessageSquare,
    key: "c",
    view: lazy(() => import("../screens/chat/ChatScreen")),
  },
  {
    name: "decisions",
    label: "Decisions",
    icon: ShieldCheck,
    key: "d",
    view: lazy(() => import("../screens/decisions/DecisionsScreen")),
  },
  {
    name: "files",
    label: "Files",
    icon: FolderTree,
    key: "f",
    view: lazy(() => import("../screens/files/FilesScreen")),
  },
  { name: "past", label: "Past", icon: History, key: "p", view: lazy(() => import("../screens/past/PastScreen")) },
  {
    name: "admin",
    label: "Administration",
    icon: SlidersHorizontal,
    key: "a",
    view: lazy(() => import("../screens/admin/AdminScreen")),
  },
];
