/** Notifications of the browser for what begins to wait while the page is hidden. Off until a person turns them on. */
import { useEffect, useRef } from "react";
import { useLocation } from "wouter";
import { create } from "zustand";
import { useInbox, useWaiting, type Waiting } from "./inbox";
import { summaryOf } from "./summary";

const KEY = "toolcrib-notifications";

/** `unsupported`: not in this browser, or not at an address without encryption. `denied`: the person said no. */
export type NotificationState = "on" | "off" | "denied" | "unsupported";

interface Notifications {
  state: NotificationState;
  turnOn: () => Promise<void>;
  turnOff: () => void;
}

export const useNotifications = create<Notifications>((set) => ({
  state: stateNow(),
  turnOn: async () => {
    localStorage.setItem(KEY, "on");
    await Notification.requestPermission();
    set({ state: stateNow() });
  },
  turnOff: () => {
    localStorage.removeItem(KEY);
    set({ state: stateNow() });
  },
}));

function stateNow(): NotificationState {
  if (!("Notification" in window) || !window.isSecureContext) return "unsupported";
  if (Notification.permission === "denied") return "denied";
  return localStorage.getItem(KEY) === "on" && Notification.permission === "granted" ? "on" : "off";
}

/** Shows one notification for each call that begins to wait while the page is hidden. A click opens it. */
export function useWaitingNotifications(): void {
  const isOn = useNotifications(({ state }) => state === "on");
  const workspaces = useInbox().data?.workspaces;
  const waiting = useWaiting(isOn ? (workspaces ?? []).filter(({ pending }) => pending > 0) : []);
  const isKnown = isOn && workspaces !== undefined && !waiting.isPending;
  const [, go] = useLocation();
  // What waited when the page was opened is not new.
  const seen = useRef<Set<string> | null>(null);
  useEffect(() => {
    if (!isKnown) return;
    const before = seen.current;
    seen.current = new Set([...(before ?? []), ...waiting.calls.map(({ pause }) => pause.id)]);
    if (before === null || !document.hidden) return;
    for (const call of waiting.calls) if (!before.has(call.pause.id)) notify(call, go);
  }, [isKnown, waiting.calls, go]);
}

function notify({ pause, workspace }: Waiting, go: (path: string) => void): void {
  const { title, detail } = summaryOf(pause);
  try {
    // The tag makes it one notification, however many tabs show it.
    const shown = new Notification(title, { body: [workspace.name, detail].filter(Boolean).join("\n"), tag: pause.id });
    shown.onclick = () => {
      window.focus();
      go(`/w/${workspace.workspace_id}/approvals/${pause.id}`);
      shown.close();
    };
  } catch {
    // Browsers of phones have the class, and refuse to make one.
    useNotifications.setState({ state: "unsupported" });
  }
}
