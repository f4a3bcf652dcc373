/** The root component: login, workspaces and screens. */
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { Redirect, Route, Switch } from "wouter";
import { ApiError } from "../api/client";
import { ErrorNote } from "../components/ErrorNote";
import { Loading } from "../components/Loading";
import { useWaitingNotifications } from "../inbox/notifications";
import { reset, useLoginByLink, useMe } from "./me";
import { Shell } from "./Shell";

// Each visit needs at most one of these.
const InboxPage = lazy(() => import("../inbox/InboxPage"));
const WorkspacesPage = lazy(async () => ({ default: (await import("./WorkspacesPage")).WorkspacesPage }));
const LoginPage = lazy(async () => ({ default: (await import("./LoginPage")).LoginPage }));
const ResetPage = lazy(async () => ({ default: (await import("./LoginPage")).ResetPage }));

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // Retry connection failures only: an error response stays the same.
      retry: (count, error) => !(error instanceof ApiError) && count < 3,
    },
  },
});

export function App() {
  return (
    <QueryClientProvider client={queries}>
      <Pages />
    </QueryClientProvider>
  );
}

function Pages() {
  const link = useLoginByLink();
  if (link.isPending) return <Loading what="Toolcrib" />;
  return (
    <Suspense fallback={<Loading what="Toolcrib" />}>
      <AccountPages linkError={link.error} />
    </Suspense>
  );
}

/** `linkError`: why a login link failed. Shown only without a login. */
function AccountPages({ linkError }: { linkError: Error | null }) {
  const me = useMe();
  const [resetToken, setResetToken] = useState(reset);
  if (resetToken !== null) return <ResetPage token={resetToken} onEnd={() => setResetToken(null)} />;
  if (me.isPending) return <Loading what="Toolcrib" />;
  if (me.error) return <ErrorNote error={me.error} />;
  if (me.data === null) return <LoginPage linkError={linkError} />;
  return <Screens />;
}

function Screens() {
  useWaitingNotifications();
  return (
    <Switch>
      <Route path="/w/:workspaceId/:screen/*?">
        {(at) => <Shell key={at.workspaceId} workspaceId={at.workspaceId} screenName={at.screen} />}
      </Route>
      <Route path="/w/:workspaceId">{(at) => <Redirect to={`/w/${at.workspaceId}/chat`} replace />}</Route>
      <Route path="/inbox">
        <Suspense fallback={<Loading what="your inbox" />}>
          <InboxPage />
        </Suspense>
      </Route>
      <Route path="/">
        <WorkspacesPage />
      </Route>
      <Route>
        <Redirect to="/" replace />
      </Route>
    </Switch>
  );
}
