import { TriangleAlert } from "lucide-react";
import { ApiError } from "../api/client";
import { errorText } from "./errorText";

/** Shows an error message; renders nothing without an error. */
export function ErrorNote({ error }: { error: unknown }) {
  if (!error) return null;
  const fields = error instanceof ApiError ? Object.entries(error.fields) : [];
  return (
    <div role="alert" className="flex gap-2 rounded-md border border-bad/40 bg-bad-soft px-3 py-2 text-bad">
      <TriangleAlert aria-hidden className="mt-0.5 size-4 shrink-0" />
      <div className="min-w-0 wrap-anywhere">
        <p>{errorText(error)}</p>
        {fields.length > 0 && (
          <ul className="mt-1">
            {fields.map(([name, message]) => (
              <li key={name}>
                <code>{name}</code>: {message}
              </li>
            ))}
          </ul>
        )}
      </div>
    </div>
  );
}
