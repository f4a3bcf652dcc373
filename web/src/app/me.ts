/** Who is logged in: asked once, and anew after logging in or out. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { ApiError, api, onLoggedOut, type Schema, taken } from "../api/client";

const ME = ["me"] as const;

/** The person, or null if nobody is logged in. */
export function useMe() {
  const queries = useQueryClient();
  useEffect(() => onLoggedOut(() => queries.setQueryData(ME, null)), [queries]);
  return useQuery({ queryKey: ME, queryFn: whoAmI, staleTime: Number.POSITIVE_INFINITY });
}

async function whoAmI(): Promise<Schema["UserAnswer"] | null> {
  try {
    return await taken(api.GET("/api/v1/auth/me"));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

/** What a login link brought along: behind the `#`, so that it was sent to nobody. It does not stay in the address. */
const secret = new URLSearchParams(location.hash.slice(1)).get("login");
if (secret !== null) history.replaceState(null, "", location.pathname);

/** Logs in by the link that led here, if one did; before anyone asks who is logged in. */
export function useLoginByLink() {
  return useQuery({
    queryKey: ["login by link"],
    queryFn: async () => {
      if (secret !== null) await taken(api.POST("/api/v1/auth/link", { body: { link: secret } }));
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
    mutationFn: (body: Schema["Credentials"]) => taken(api.POST("/api/v1/auth/login", { body })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ME }),
  });
}

export function useRegister() {
  return useMutation({
    mutationFn: (body: Schema["Registration"]) => taken(api.POST("/api/v1/auth/register", { body })),
  });
}

export function useLogout() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: () => taken(api.POST("/api/v1/auth/logout", {})),
    onSuccess: () => {
      // What one person saw, the next one at this browser must not.
      queries.setQueryData(ME, null);
      queries.removeQueries({ predicate: (query) => query.queryKey[0] !== ME[0] });
    },
  });
}
