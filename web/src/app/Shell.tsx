/** The frame around every screen of a workspace: its name, the navigation, and the screen that is open. */
import { ChevronsUpDown } from "lucide-react";
import { Suspense, useMemo } from "react";
import { Link, Redirect, useLocation } from "wouter";
import { usePending } from "../approvals/pausedCalls";
import { ErrorBoundary } from "../components/ErrorBoundary";
import { ErrorNote } from "../components/ErrorNote";
import { Loading } from "../components/Loading";
import { LiveProvider } from "../events/LiveProvider";
import { AccountMenu } from "./AccountMenu";
import { Logo } from "./Logo";
import { REVIEW, SCREENS, type Screen } from "./screens";
import { type Shortcut, ShortcutList, useShortcutKeys, useShortcutList, useShortcuts } from "./shortcuts";
import { useTitle } from "./title";
import { useWorkspace } from "./workspaces";

interface Props {
  workspaceId: string;
  screenName: string;
}

export function Shell(props: Props) {
  return (
    <LiveProvider workspaceId={props.workspaceId}>
      <Frame {...props} />
    </LiveProvider>
  );
}

function Frame({ workspaceId, screenName }: Props) {
  const workspace = useWorkspace(workspaceId);
  const screen = [...SCREENS, REVIEW].find((one) => one.name === screenName);
  useTitle(screen?.label, workspace.data?.name);
  useNavigationKeys(workspaceId);
  if (screen === undefined) return <Redirect to={`/w/${workspaceId}/chat`} replace />;
  const View = screen.view;
  return (
    <div className="flex h-full flex-col md:flex-row">
      <a
        href="#content"
        className="absolute left-2 top-2 z-50 -translate-y-20 rounded-md bg-accent px-3 py-2 text-on-accent focus:translate-y-0"
      >
        Skip to content
      </a>
      <header className="flex shrink-0 items-center gap-2 border-b border-line bg-surface px-3 py-1.5 md:w-52 md:flex-col md:items-stretch md:border-b-0 md:border-r md:p-2">
        <Link
          href="/"
          className="flex min-w-0 grow items-center gap-2 rounded-md p-1.5 hover:bg-accent-soft md:grow-0"
          aria-label={`Workspace ${workspace.data?.name ?? ""}: switch workspace`}
        >
          <Logo className="size-6" />
          <span className="min-w-0 grow truncate font-semibold">{workspace.data?.name ?? "…"}</span>
          <ChevronsUpDown aria-hidden className="size-4 shrink-0 text-muted" />
        </Link>
        <Navigation
          workspaceId={workspaceId}
          current={screen}
          className="hidden md:flex md:grow md:flex-col md:gap-0.5"
        />
        <AccountMenu />
      </header>
      <main id="content" tabIndex={-1} className="min-h-0 min-w-0 grow focus-visible:outline-none">
        {workspace.error ? (
          <div className="p-4">
            <ErrorNote error={workspace.error} />
          </div>
        ) : (
          <ErrorBoundary key={screen.name}>
            <Suspense fallback={<Loading what={screen.label} />}>
              <View workspaceId={workspaceId} />
            </Suspense>
          </ErrorBoundary>
        )}
      </main>
      <Navigation
        workspaceId={workspaceId}
        current={screen}
        className="flex shrink-0 justify-around border-t border-line bg-surface pb-[env(safe-area-inset-bottom)] md:hidden"
      />
      <ShortcutList />
    </div>
  );
}

function PendingCount({ workspaceId }: { workspaceId: string }) {
  const pending = usePending(workspaceId);
  const count = pending.data?.length ?? 0;
  if (count === 0) return null;
  return (
    <span className="absolute top-0.5 left-1/2 rounded-full bg-warn px-1.5 text-[11px] leading-4 font-semibold text-surface md:static md:ml-auto">
      {count} <span className="sr-only">pending</span>
    </span>
  );
}

function Navigation({ workspaceId, current, className }: { workspaceId: string; current: Screen; className: string }) {
  return (
    <nav aria-label="Screens" className={className}>
      {SCREENS.map(({ name, label, icon: Icon }) => (
        <Link
          key={name}
          href={`/w/${workspaceId}/${name}`}
          aria-current={name === current.name ? "page" : undefined}
          className="relative flex min-w-0 flex-col items-center gap-0.5 rounded-md px-1.5 py-1.5 text-[11px] text-muted hover:bg-accent-soft hover:text-ink aria-[current]:font-medium aria-[current]:text-accent md:flex-row md:gap-2.5 md:px-2.5 md:text-sm md:aria-[current]:bg-accent-soft"
        >
          <Icon aria-hidden className="size-5 md:size-4" />
          <span className="max-w-full truncate">{label}</span>
          {name === "approvals" && <PendingCount workspaceId={workspaceId} />}
        </Link>
      ))}
    </nav>
  );
}

function useNavigationKeys(workspaceId: string): void {
  const [, go] = useLocation();
  const showList = useShortcutList((list) => list.show);
  useShortcutKeys();
  useShortcuts(
    useMemo<Shortcut[]>(
      () => [
        { keys: "?", does: "Show this list", act: showList },
        ...SCREENS.map((screen) => ({
          keys: `g ${screen.key}`,
          does: `Go to ${screen.label}`,
          act: () => go(`/w/${workspaceId}/${screen.name}`),
        })),
      ],
      [workspaceId, go, showList],
    ),
  );
}
