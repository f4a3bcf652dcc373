/** The commands of the palette: actions, screens, settings, workspaces, sessions, what was said in them, and files. */
import { useQuery } from "@tanstack/react-query";
import {
  Boxes,
  FileText,
  Inbox,
  LogOut,
  MessageSquare,
  Moon,
  SlidersHorizontal,
  Sun,
  TextSearch,
  Zap,
} from "lucide-react";
import { useLocation } from "wouter";
import { api, unwrap } from "../api/client";
import { callTool } from "../api/tools";
import { useLogout } from "../app/me";
import { SCREENS } from "../app/screens";
import { activeShortcuts } from "../app/shortcuts";
import { useTheme } from "../app/theme";
import { useWorkspaces } from "../app/workspaces";
import { escapedLine } from "../components/shownText";
import { useSettled } from "../components/useSettled";
import { useFoundSessions } from "../screens/chat/sessions";
import type { Command } from "./commands";

/** The sections of the settings, which the palette need not load. */
const SETTINGS: Record<string, string> = {
  members: "Members",
  agents: "Agents",
  permissions: "Saved approvals",
  mcp: "MCP servers",
  models: "Models",
  keys: "API keys",
  usage: "Usage and budgets",
  status: "Storage and status",
};

const MIN_TEXT = 2;
const TYPING = 150;
const MAX_FILES = 20;

export function useCommands(workspaceId: string, text: string): Command[] {
  const [, go] = useLocation();
  const workspaces = useWorkspaces();
  const sessions = useSessionNames(workspaceId);
  const files = useFileNames(workspaceId, text);
  const found = useFoundInConversations(workspaceId, text);
  const to = (path: string) => () => go(`/w/${workspaceId}/${path}`);
  return [
    ...useActions(),
    ...SCREENS.map(
      ({ name, label, icon }): Command => ({ id: `screen ${name}`, group: "Go to", label, icon, run: to(name) }),
    ),
    { id: "inbox", group: "Go to", label: "Inbox", icon: Inbox, run: () => go("/inbox") },
    ...Object.entries(SETTINGS).map(
      ([name, label]): Command => ({
        id: `settings ${name}`,
        group: "Go to",
        label: `Settings: ${label}`,
        icon: SlidersHorizontal,
        run: to(`settings/${name}`),
      }),
    ),
    ...(sessions.data?.items ?? []).map(
      (session): Command => ({
        id: `session ${session.id}`,
        group: "Sessions",
        label: session.title ?? `Session of ${new Date(session.created_at).toLocaleString()}`,
        icon: MessageSquare,
        run: to(`chat/${session.id}`),
      }),
    ),
    ...found.map(
      ({ session_id, title, message_id, excerpt }): Command => ({
        id: `found ${session_id}`,
        group: "In conversations",
        label: escapedLine(title ?? "Untitled session"),
        excerpt: escapedLine(excerpt ?? ""),
        icon: TextSearch,
        run: to(`chat/${session_id}${message_id ? `#${message_id}` : ""}`),
      }),
    ),
    ...(files.data ?? []).map(
      (path): Command => ({
        id: `file ${path}`,
        group: "Files",
        label: escapedLine(path),
        icon: FileText,
        run: to(`files?path=${encodeURIComponent(path)}`),
      }),
    ),
    ...(workspaces.data?.items ?? [])
      .filter(({ id }) => id !== workspaceId)
      .map(
        ({ id, name }): Command => ({
          id: `workspace ${id}`,
          group: "Workspaces",
          label: name,
          icon: Boxes,
          run: () => go(`/w/${id}/chat`),
        }),
      ),
  ];
}

/** What the open screen offers by keys, the theme, and the logout. */
function useActions(): Command[] {
  const { choose } = useTheme();
  const logout = useLogout();
  const isDark = getComputedStyle(document.documentElement).colorScheme.trim() === "dark" || isSystemDark();
  return [
    ...activeShortcuts()
      .filter(({ keys }) => !keys.startsWith("g "))
      .map(
        ({ keys, does, act }): Command => ({
          id: `action ${keys}`,
          group: "Actions",
          label: does,
          detail: keys,
          icon: Zap,
          run: act,
        }),
      ),
    {
      id: "theme",
      group: "Actions",
      label: isDark ? "Use the light theme" : "Use the dark theme",
      icon: isDark ? Sun : Moon,
      run: () => choose(isDark ? "light" : "dark"),
    },
    { id: "logout", group: "Actions", label: "Log out", icon: LogOut, run: () => logout.mutate() },
  ];
}

function isSystemDark(): boolean {
  const { theme } = document.documentElement.dataset;
  return theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches;
}

function useSessionNames(workspaceId: string) {
  return useQuery({
    queryKey: [workspaceId, "sessions", "palette"],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions", {
          params: { path: { workspace_id: workspaceId }, query: { limit: 200 } },
        }),
      ),
  });
}

/** Sessions whose messages have the words. Those that are found by their titles are offered anyway. */
function useFoundInConversations(workspaceId: string, text: string) {
  const typed = text.trim();
  const query = useSettled(typed, TYPING);
  const found = useFoundSessions(workspaceId, query.length >= MIN_TEXT ? query : "");
  return typed === "" ? [] : (found.data?.items ?? []).filter(({ message_id }) => message_id !== null);
}

function useFileNames(workspaceId: string, text: string) {
  const name = text.trim().split(/\s+/)[0] ?? "";
  return useQuery({
    queryKey: ["files", workspaceId, "palette", name],
    queryFn: async () => {
      const found = await callTool(workspaceId, "find", { name: `*${name}*`, limit: MAX_FILES });
      return found.matches.map(({ path }) => path);
    },
    enabled: name.length >= MIN_TEXT && !/[*?[\]]/.test(name),
    placeholderData: (before) => before,
  });
}
