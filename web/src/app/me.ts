/** The current user: fetched once, and again after login or logout. */
import { type QueryClient, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { ApiError, api, onLoggedOut, type Schema, unwrap } from "../api/client";
import { announceLogin, onLoginElsewhere } from "../api/loginChannel";

const ME = ["me"] as const;

/** Returns the current user, or null without a login. */
export function useMe() {
  const queries = useQueryClient();
  useEffect(() => onLoggedOut(() => queries.setQueryData(ME, null)), [queries]);
  useEffect(
    () =>
      onLoginElsewhere((change) => {
        if (change === "logged-in") void queries.invalidateQueries({ queryKey: ME });
        else forget(queries);
      }),
    [queries],
  );
  return useQuery({ queryKey: ME, queryFn: fetchMe, staleTime: Number.POSITIVE_INFINITY });
}

async function fetchMe(): Promise<Schema["UserOut"] | null> {
  try {
    return await unwrap(api.GET("/api/v1/auth/me"));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

/** Secrets from the link, in the fragment so that they reach no server. Removed from the address below. */
const fragment = new URLSearchParams(location.hash.slice(1));
const secret = fragment.get("login");
/** Token that creates the first account of a server. */
export const setup = fragment.get("setup");
/** Token that creates the account of an invited person. */
export const invitation = fragment.get("invitation");
/** Token that sets a new password. */
export const reset = fragment.get("reset");
if (hasSecret(fragment)) history.replaceState(null, "", location.pathname);
// A link that is opened in this tab changes only the fragment, which loads nothing.
addEventListener("hashchange", () => {
  if (hasSecret(new URLSearchParams(location.hash.slice(1)))) location.reload();
});

function hasSecret(given: URLSearchParams): boolean {
  return ["login", "setup", "invitation", "reset"].some((name) => given.has(name));
}

/** Logs in with the secret of a login link, before the current user is fetched. */
export function useLoginByLink() {
  return useQuery({
    queryKey: ["login by link"],
    queryFn: async () => {
      if (secret !== null) await unwrap(api.POST("/api/v1/auth/link", { body: { link: secret } }));
      return true;
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
}

export function useLogin() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: Schema["LoginIn"]) => unwrap(api.POST("/api/v1/auth/login", { body })),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ME });
      announceLogin("logged-in");
    },
  });
}

/** Whether registration is open, and whether cookies need HTTPS. */
export function useRegistration() {
  return useQuery({
    queryKey: ["registration"],
    queryFn: () => unwrap(api.GET("/api/v1/auth/registration")),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useRegister() {
  return useMutation({
    mutationFn: (body: Schema["RegisterIn"]) => unwrap(api.POST("/api/v1/auth/register", { body })),
  });
}

/** Creates the invited account and logs in. */
export function useAccept() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: Schema["InvitationAcceptanceIn"]) =>
      unwrap(api.POST("/api/v1/auth/invitations/accept", { body })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ME }),
  });
}

/** Sets a new password and logs in, also where somebody else was logged in. */
export function useResetPassword() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: Schema["PasswordResetIn"]) => unwrap(api.POST("/api/v1/auth/password/reset", { body })),
    onSuccess: async () => {
      forget(queries);
      announceLogin("logged-out");
      await queries.invalidateQueries({ queryKey: ME });
      announceLogin("logged-in");
    },
  });
}

export function useLogout() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/logout", {})),
    onSuccess: () => {
      forget(queries);
      announceLogin("logged-out");
    },
  });
}

/** Removes what was cached: the next user of this browser must not see it. */
function forget(queries: QueryClient): void {
  queries.setQueryData(ME, null);
  queries.removeQueries({ predicate: (query) => query.queryKey[0] !== ME[0] });
}
