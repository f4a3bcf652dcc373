/** Lists workspaces and creates new ones. */
import { ChevronRight } from "lucide-react";
import { type FormEvent, useState } from "react";
import { Link, useLocation } from "wouter";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { Empty } from "../components/Empty";
import { ErrorNote } from "../components/ErrorNote";
import { Field } from "../components/Field";
import { Skeleton } from "../components/Skeleton";
import { useInbox } from "../inbox/inbox";
import { InboxLink } from "./InboxLink";
import { PageHead } from "./PageHead";
import { useTitle } from "./title";
import { useCreateWorkspace, useWorkspaces } from "./workspaces";

export function WorkspacesPage() {
  useTitle("Workspaces");
  const workspaces = useWorkspaces();
  const inbox = useInbox();
  const waiting = (id: string) => inbox.data?.workspaces.find((one) => one.workspace_id === id)?.pending ?? 0;
  const create = useCreateWorkspace();
  const [name, setName] = useState("");
  const [, go] = useLocation();

  function submit(event: FormEvent) {
    event.preventDefault();
    create.mutate(name, { onSuccess: (made) => go(`/w/${made.id}/start`) });
  }

  return (
    <main className="mx-auto max-w-xl space-y-6 p-4 pt-8">
      <PageHead title="Workspaces" isHome aside={<InboxLink />} />
      {workspaces.isPending && <Skeleton what="your workspaces" />}
      <ErrorNote error={workspaces.error} />
      {workspaces.data?.items.length === 0 && (
        <Empty title="No workspaces yet">Create a workspace or ask an owner to add you.</Empty>
      )}
      {workspaces.data && workspaces.data.items.length > 0 && (
        <ul className="divide-y divide-line overflow-hidden rounded-xl border border-line bg-surface">
          {workspaces.data.items.map((workspace) => (
            <li key={workspace.id}>
              <Link
                href={`/w/${workspace.id}/chat`}
                className="flex items-center gap-3 px-4 py-3 -outline-offset-2 hover:bg-accent-soft"
              >
                <span className="grow truncate font-medium">{workspace.name}</span>
                {waiting(workspace.id) > 0 && <Badge tone="warn">{waiting(workspace.id)} waiting</Badge>}
                <Badge>{workspace.role}</Badge>
                <ChevronRight aria-hidden className="size-4 text-muted" />
              </Link>
            </li>
          ))}
        </ul>
      )}
      <form onSubmit={submit} className="flex items-end gap-2">
        <div className="grow">
          <Field label="New workspace name" required value={name} onChange={setName} />
        </div>
        <Button type="submit" variant="primary" busy={create.isPending}>
          Create
        </Button>
      </form>
      <ErrorNote error={create.error} />
    </main>
  );
}
