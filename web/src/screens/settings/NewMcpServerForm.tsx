import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Select } from "../../components/Select";
import { TextArea } from "../../components/TextArea";
import { useRefetch } from "./data";

const TRANSPORTS = { http: "HTTP", stdio: "stdio, run in the sandbox" };
type Access = Schema["McpWorkspaceAccess"];
const ACCESS: Record<Access, string> = {
  none: "None",
  "read-only": "Read-only",
  transaction: "Changes as change sets",
};

export function NewMcpServerForm({ workspaceId, onAdded }: { workspaceId: string; onAdded: () => void }) {
  const refetch = useRefetch([workspaceId, "mcp"]);
  const [name, setName] = useState("");
  const [transport, setTransport] = useState("http");
  const [endpoint, setEndpoint] = useState("");
  const [secrets, setSecrets] = useState("");
  const [hosts, setHosts] = useState("");
  const [access, setAccess] = useState<string>("none");
  const addition = useMutation({
    mutationFn: () =>
      add(workspaceId, {
        name,
        ...endpointOf(transport, endpoint),
        secrets: secretsOf(secrets),
        hosts: transport === "stdio" ? lines(hosts) : [],
        workspace_access: transport === "stdio" ? (access as Access) : "none",
        safe_tools: [],
      }),
    onSuccess: async () => {
      await refetch();
      onAdded();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    addition.mutate();
  }

  return (
    <form onSubmit={submit} className="space-y-4">
      <Field
        label="Name"
        required
        value={name}
        onChange={setName}
        pattern="[a-z0-9][a-z0-9_\-]*"
        hint="Its tools are named mcp:<name>. Use lowercase letters, digits, - and _."
      />
      <Select label="Transport" value={transport} onChange={setTransport} options={TRANSPORTS} />
      {transport === "http" ? (
        <Field label="URL" type="url" required value={endpoint} onChange={setEndpoint} />
      ) : (
        <TextArea
          label="Command and arguments, one per line"
          isCode
          rows={4}
          required
          value={endpoint}
          onChange={setEndpoint}
        />
      )}
      <TextArea
        label={transport === "http" ? "Secret headers" : "Secret environment variables"}
        isCode
        rows={2}
        value={secrets}
        onChange={setSecrets}
        hint="NAME=value, one per line. Stored encrypted and never shown again."
      />
      {transport === "stdio" && (
        <>
          <TextArea
            label="Hosts"
            isCode
            rows={2}
            value={hosts}
            onChange={setHosts}
            hint="Hosts that it may contact, one per line, such as api.example.com. Without any, it has no network."
          />
          <Select label="Access to the workspace" value={access} onChange={setAccess} options={ACCESS} />
        </>
      )}
      <ErrorNote error={addition.error} />
      <Button type="submit" variant="primary" busy={addition.isPending}>
        Add server
      </Button>
    </form>
  );
}

function add(workspaceId: string, body: Schema["McpServerCreate"]) {
  return unwrap(
    api.POST("/api/v1/workspaces/{workspace_id}/mcp-servers", {
      params: { path: { workspace_id: workspaceId } },
      body,
    }),
  );
}

function endpointOf(transport: string, endpoint: string): { url: string } | { command: string[] } {
  return transport === "http" ? { url: endpoint } : { command: lines(endpoint) };
}

function secretsOf(text: string): Record<string, string> {
  return Object.fromEntries(
    lines(text).map((line) => {
      const [name, ...rest] = line.split("=");
      if (rest.length === 0) throw new Error(`"${line}" has no "=". Write NAME=value, one per line.`);
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
