/** The screens of a workspace, in the order of the navigation. Each is loaded when it is first opened. */
import {
  CalendarClock,
  FolderTree,
  History,
  type LucideIcon,
  MessageSquare,
  Rocket,
  ShieldCheck,
  SlidersHorizontal,
} from "lucide-react";
import { type ComponentType, type LazyExoticComponent, lazy } from "react";
import type { ScreenProps } from "./screenProps";

export interface Screen {
  /** The path segment after the workspace. */
  name: string;
  label: string;
  icon: LucideIcon;
  /** `g` and this key open the screen. */
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
    name: "approvals",
    label: "Approvals",
    icon: ShieldCheck,
    key: "a",
    view: lazy(() => import("../screens/approvals/ApprovalsScreen")),
  },
  {
    name: "files",
    label: "Files",
    icon: FolderTree,
    key: "f",
    view: lazy(() => import("../screens/files/FilesScreen")),
  },
  {
    name: "history",
    label: "History",
    icon: History,
    key: "h",
    view: lazy(() => import("../screens/history/HistoryScreen")),
  },
  {
    name: "schedules",
    label: "Schedules",
    icon: CalendarClock,
    key: "d",
    view: lazy(() => import("../screens/schedules/SchedulesScreen")),
  },
  {
    name: "settings",
    label: "Settings",
    icon: SlidersHorizontal,
    key: "s",
    view: lazy(() => import("../screens/settings/SettingsScreen")),
  },
];

/** Not in the navigation once the workspace has an agent. */
export const START: Screen = {
  name: "start",
  label: "First steps",
  icon: Rocket,
  key: "",
  view: lazy(() => import("../screens/start/StartScreen")),
};

/** A run is opened from the history, from a review, and from the run that started it. */
export const RUN: Screen = {
  name: "run",
  label: "Run",
  icon: History,
  key: "",
  view: lazy(() => import("../screens/run/RunScreen")),
};

/** Reviews are opened from sessions and approvals, not from the navigation. */
export const REVIEW: Screen = {
  name: "review",
  label: "Review",
  icon: ShieldCheck,
  key: "",
  view: lazy(() => import("../screens/review/ReviewScreen")),
};
