/** Choosing a workspace, or founding one. */
import { ChevronRight } from "lucide-react";
import { type FormEvent, useState } from "react";
import { Link, useLocation } from "wouter";
import { Badge } from "../parts/Badge";
import { Button } from "../parts/Button";
import { Empty } from "../parts/Empty";
import { ErrorNote } from "../parts/ErrorNote";
import { Field } from "../parts/Field";
import { Loading } from "../parts/Loading";
import { AccountMenu } from "./AccountMenu";
import { Logo } from "./Logo";
import { useTitle } from "./title";
import { useCreateWorkspace, useWorkspaces } from "./workspaces";

export function WorkspacesPage() {
  useTitle("Workspaces");
  const workspaces = useWorkspaces();
  const create = useCreateWorkspace();
  const [name, setName] = useState("");
  const [, go] = useLocation();

  function submit(event: FormEvent) {
    event.preventDefault();
    create.mutate(name, { onSuccess: (made) => go(`/w/${made.id}/chat`) });
  }

  return (
    <main className="mx-auto max-w-xl space-y-5 p-4 pt-10">
      <header className="flex items-center gap-3">
        <Logo />
        <h1 className="grow text-xl font-semibold">Workspaces</h1>
        <AccountMenu />
      </header>
      {workspaces.isPending && <Loading what="your workspaces" />}
      <ErrorNote error={workspaces.error} />
      {workspaces.data?.items.length === 0 && (
        <Empty title="You belong to no workspace yet">Found one below, or ask its owner to add you.</Empty>
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
                <Badge>{workspace.role}</Badge>
                <ChevronRight aria-hidden className="size-4 text-muted" />
              </Link>
            </li>
          ))}
        </ul>
      )}
      <form onSubmit={submit} className="flex items-end gap-2">
        <div className="grow">
          <Field label="Name of a new workspace" required value={name} onChange={setName} />
        </div>
        <Button type="submit" look="primary" busy={create.isPending}>
          Found it
        </Button>
      </form>
      <ErrorNote error={create.error} />
    </main>
  );
}
