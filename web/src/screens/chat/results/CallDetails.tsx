/** A call as it was made: its arguments and its result in JSON, for whoever wants to know exactly. */
import { useState } from "react";
import { ArgumentList, Code } from "../../../components/Code";
import type { Call } from "../../../events/conversation";

export function CallDetails({ call, isOpen = false }: { call: Call; isOpen?: boolean }) {
  const [isShown, setIsShown] = useState(isOpen);
  return (
    <details open={isShown} onToggle={(event) => setIsShown(event.currentTarget.open)}>
      <summary className="w-fit rounded-sm text-xs text-muted hover:text-ink">Details</summary>
      {isShown && (
        <div className="mt-2 space-y-2">
          {call.input !== null && <ArgumentList given={call.input} label="Input" />}
          {call.result !== null && <Code text={pretty(call.result)} label="Raw result" />}
          <p className="font-mono text-xs text-muted wrap-anywhere">{call.id}</p>
        </div>
      )}
    </details>
  );
}

function pretty(result: string): string {
  if (!/^\s*[[{]/.test(result)) return result;
  try {
    return JSON.stringify(JSON.parse(result), null, 2);
  } catch {
    return result;
  }
}
