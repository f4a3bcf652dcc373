import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { useRefetch } from "./data";

/** Changes one's own password. */
export function PasswordCard() {
  const refetch = useRefetch(["logins"]);
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const change = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/auth/password", { body: { current_password: current, new_password: next } })),
    onSuccess: () => {
      setCurrent("");
      setNext("");
      return refetch();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    change.mutate();
  }

  return (
    <Card title="Password">
      <form onSubmit={submit} className="flex flex-wrap items-start gap-3">
        <div className="min-w-52 grow">
          <Field
            label="Current password"
            type="password"
            required
            value={current}
            onChange={setCurrent}
            autoComplete="current-password"
          />
        </div>
        <div className="min-w-52 grow">
          <Field
            label="New password"
            type="password"
            required
            value={next}
            onChange={setNext}
            autoComplete="new-password"
            hint="At least 12 characters."
          />
        </div>
        <Button type="submit" variant="primary" className="mt-6" busy={change.isPending}>
          Change password
        </Button>
      </form>
      <div className="mt-3 space-y-2">
        <p className="text-xs text-muted">This logs you out everywhere else. Your API keys stay valid.</p>
        <ErrorNote error={change.error} />
        {change.isSuccess && (
          <p role="status" className="text-good">
            Your password is changed.
          </p>
        )}
      </div>
    </Card>
  );
}
