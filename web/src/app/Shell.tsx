/** The frame around every screen of a workspace: its name, the navigation, and the screen that is open. */
import { ChevronsUpDown } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { Link, Redirect, useLocation } from "wouter";
import { usePending } from "../approvals/pausedCalls";
import { ErrorBoundary } from "../components/ErrorBoundary";
import { ErrorNote } from "../components/ErrorNote";
import { Loading } from "../components/Loading";
import { LiveProvider } from "../events/LiveProvider";
import { usePalette, usePaletteKey } from "../palette/openPalette";
import { AccountMenu } from "./AccountMenu";
import { ConnectionBanner } from "./ConnectionBanner";
import { InboxLink } from "./InboxLink";
import { Logo } from "./Logo";
import { MoreMenu } from "./MoreMenu";
import { PaletteButton } from "./PaletteButton";
import { StartLink } from "./StartLink";
import { REVIEW, RUN, SCREENS, type Screen, START } from "./screens";
import { type Shortcut, ShortcutList, useShortcutKeys, useShortcutList, useShortcuts } from "./shortcuts";
import { useTitle } from "./title";
import { useWorkspace } from "./workspaces";

const CommandPalette = lazy(() => import("../palette/CommandPalette"));

/** How many screens the bar of a phone has room for. */
const IN_BAR = 4;

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
  const screen = [...SCREENS, START, REVIEW, RUN].find((one) => one.name === screenName);
  useTitle(screen?.label, workspace.data?.name);
  useNavigationKeys(workspaceId);
  usePaletteKey();
  const wasPaletteOpened = useWasPaletteOpened();
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
      <header className="flex shrink-0 items-center gap-2 border-b border-line bg-surface px-3 py-2 md:w-52 min-[90rem]:w-60 md:flex-col md:items-stretch md:border-b-0 md:border-r md:p-2">
        <Link
          href="/"
          className="flex min-w-0 grow items-center gap-2 rounded-md px-2 py-2 hover:bg-accent-soft md:grow-0 md:px-3"
          aria-label={`Workspace ${workspace.data?.name ?? ""}: switch workspace`}
        >
          <Logo className="size-6" />
          <span className="min-w-0 grow truncate font-semibold">{workspace.data?.name ?? "…"}</span>
          <ChevronsUpDown aria-hidden className="size-4 shrink-0 text-muted" />
        </Link>
        <PaletteButton />
        <StartLink workspaceId={workspaceId} />
        <Navigation
          workspaceId={workspaceId}
          current={screen}
          className="hidden md:flex md:grow md:flex-col md:gap-0.5"
        />
        <InboxLink isWide />
        <div className="shrink-0 md:self-start">
          <AccountMenu />
        </div>
      </header>
      <main id="content" tabIndex={-1} className="flex min-h-0 min-w-0 grow flex-col focus-visible:outline-none">
        <ConnectionBanner />
        <div className="min-h-0 grow">
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
        </div>
      </main>
      <Navigation
        workspaceId={workspaceId}
        current={screen}
        isBar
        className="grid shrink-0 auto-cols-fr grid-flow-col items-stretch border-t border-line bg-surface pb-[env(safe-area-inset-bottom)] md:hidden"
      />
      <ShortcutList />
      {wasPaletteOpened && (
        <Suspense>
          <CommandPalette workspaceId={workspaceId} />
        </Suspense>
      )}
    </div>
  );
}

/** Whether the palette was opened before: until then it is not loaded. */
function useWasPaletteOpened(): boolean {
  const isOpen = usePalette((palette) => palette.isOpen);
  const [wasOpened, setWasOpened] = useState(isOpen);
  useEffect(() => {
    if (isOpen) setWasOpened(true);
  }, [isOpen]);
  return wasOpened;
}

function PendingCount({ workspaceId }: { workspaceId: string }) {
  const pending = usePending(workspaceId);
  const count = pending.data?.length ?? 0;
  if (count === 0) return null;
  return (
    <span className="absolute top-0.5 left-1/2 rounded-full bg-warn px-2 text-2xs leading-4 font-semibold text-surface md:static md:ml-auto">
      {count} <span className="sr-only">pending</span>
    </span>
  );
}

interface NavigationProps {
  workspaceId: string;
  current: Screen;
  className: string;
  /** The bar of a phone: what is used most, where the thumb is, and the rest in a menu. */
  isBar?: boolean;
}

function Navigation({ workspaceId, current, className, isBar }: NavigationProps) {
  return (
    <nav aria-label="Screens" className={className}>
      {SCREENS.slice(0, isBar ? IN_BAR : undefined).map(({ name, label, icon: Icon }) => (
        <Link
          key={name}
          href={`/w/${workspaceId}/${name}`}
          aria-current={name === current.name ? "page" : undefined}
          className="relative flex min-h-13 min-w-0 flex-col items-center justify-center gap-0.5 rounded-md px-2 py-2 text-2xs text-muted hover:bg-accent-soft hover:text-ink aria-[current]:font-medium aria-[current]:text-accent md:min-h-8 md:flex-row md:justify-start md:gap-2 md:px-3 md:py-1 md:text-sm md:aria-[current]:bg-accent-soft"
        >
          <Icon aria-hidden className="size-5 md:size-4" />
          <span className="max-w-full truncate">{label}</span>
          {name === "approvals" && <PendingCount workspaceId={workspaceId} />}
        </Link>
      ))}
      {isBar && <MoreMenu workspaceId={workspaceId} screens={SCREENS.slice(IN_BAR)} />}
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
        { keys: "?", does: "Show keyboard shortcuts", act: showList },
        ...SCREENS.map((screen) => ({
          keys: `g ${screen.key}`,
          does: `Go to ${screen.label}`,
          act: () => go(`/w/${workspaceId}/${screen.name}`),
        })),
        { keys: "g i", does: "Go to the inbox", act: () => go("/inbox") },
      ],
      [workspaceId, go, showList],
    ),
  );
}
