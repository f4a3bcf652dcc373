import { Card } from "../../components/Card";
import { type NotificationState, useNotifications } from "../../inbox/notifications";

const NOTES: Record<NotificationState, string> = {
  on: "One for each approval or question that begins to wait while this page is hidden. A click opens it.",
  off: "One for each approval or question that begins to wait while this page is hidden. Your browser asks you first.",
  denied: "Your browser blocks notifications of this address. Allow them in its settings of this site.",
  unsupported: "This browser has none, or shows them only at addresses with HTTPS.",
};

/** Turns notifications on in this browser. */
export function NotificationsCard() {
  const { state, turnOn, turnOff } = useNotifications();
  const isPossible = state === "on" || state === "off";
  return (
    <Card title="Notifications">
      <label className="flex items-start gap-3">
        <input
          type="checkbox"
          className="mt-0.5 size-4"
          checked={state === "on"}
          disabled={!isPossible}
          aria-describedby="notifications-note"
          onChange={({ target }) => (target.checked ? void turnOn() : turnOff())}
        />
        <span>
          <span className="block font-medium">Notify me in this browser when something waits for me</span>
          <span id="notifications-note" className="text-muted">
            {NOTES[state]}
          </span>
        </span>
      </label>
    </Card>
  );
}
