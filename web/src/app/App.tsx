/** The whole page: who is logged in, which workspace, which screen. */
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Redirect, Route, Switch } from "wouter";
import { ApiError } from "../api/client";
import { ErrorNote } from "../parts/ErrorNote";
import { Loading } from "../parts/Loading";
import { LoginPage } from "./LoginPage";
import { useLoginByLink, useMe } from "./me";
import { Shell } from "./Shell";
import { WorkspacesPage } from "./WorkspacesPage";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // What the server refused it will refuse again; only a connection that failed is worth another try.
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
  return link.isPending ? <Loading what="Toolcrib" /> : <PagesOfSomeone refused={link.error} />;
}

/** `refused` is why a link did not log in. Who was logged in before need not know. */
function PagesOfSomeone({ refused }: { refused: Error | null }) {
  const me = useMe();
  if (me.isPending) return <Loading what="Toolcrib" />;
  if (me.error) return <ErrorNote error={me.error} />;
  if (me.data === null) return <LoginPage refused={refused} />;
  return (
    <Switch>
      <Route path="/w/:workspaceId/:screen/*?">
        {(at) => <Shell key={at.workspaceId} workspaceId={at.workspaceId} screenName={at.screen} />}
      </Route>
      <Route path="/w/:workspaceId">{(at) => <Redirect to={`/w/${at.workspaceId}/chat`} replace />}</Route>
      <Route path="/">
        <WorkspacesPage />
      </Route>
      <Route>
        <Redirect to="/" replace />
      </Route>
    </Switch>
  );
}
