import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, taken } from "../../api/client";
import { Button } from "../../parts/Button";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { Select } from "../../parts/Select";
import { TextArea } from "../../parts/TextArea";
import { useRefetch } from "./data";

const WAYS = { http: "An address", stdio: "A program, run in the sandbox" };

export function NewMcpServerForm({ workspaceId, onAdded }: { workspaceId: string; onAdded: () => void }) {
  const refetch = useRefetch([workspaceId, "mcp"]);
  const [name, setName] = useState("");
  const [way, setWay] = useState("http");
  const [place, setPlace] = useState("");
  const [secrets, setSecrets] = useState("");
  const adding = useMutation({
    mutationFn: () => add(workspaceId, { name, ...placeOf(way, place), secrets: secretsOf(secrets), safe_tools: [] }),
    onSuccess: async () => {
      await refetch();
      onAdded();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    adding.mutate();
  }

  return (
    <form onSubmit={submit} className="space-y-4">
      <Field
        label="Name"
        required
        value={name}
        onChange={setName}
        pattern="[a-z0-9][a-z0-9_\-]*"
        hint="Its tools are called mcp:<name>. Small letters, digits, - and _."
      />
      <Select label="It is" value={way} onChange={setWay} options={WAYS} />
      {way === "http" ? (
        <Field label="Address" type="url" required value={place} onChange={setPlace} />
      ) : (
        <TextArea
          label="Program and its arguments, one on each line"
          isCode
          rows={4}
          required
          value={place}
          onChange={setPlace}
        />
      )}
      <TextArea
        label={way === "http" ? "Headers with secrets" : "Environment with secrets"}
        isCode
        rows={2}
        value={secrets}
        onChange={setSecrets}
        hint="NAME=value, one on each line. Stored encrypted, never shown again."
      />
      <ErrorNote error={adding.error} />
      <Button type="submit" look="primary" busy={adding.isPending}>
        Add and look at its tools
      </Button>
    </form>
  );
}

function add(workspaceId: string, body: Schema["NewMcpServer"]) {
  return taken(
    api.POST("/api/v1/workspaces/{workspace_id}/mcp-servers", {
      params: { path: { workspace_id: workspaceId } },
      body,
    }),
  );
}

function placeOf(way: string, place: string): { url: string } | { command: string[] } {
  return way === "http" ? { url: place } : { command: lines(place) };
}

function secretsOf(text: string): Record<string, string> {
  return Object.fromEntries(
    lines(text).map((line) => {
      const [name, ...rest] = line.split("=");
      if (rest.length === 0) throw new Error(`"${line}" has no "=". Write NAME=value, one on each line.`);
      return [name, rest.join("=")];
    }),
  );
}

function lines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}
