/** Renews the login of the browser. All tabs share one refresh cookie, which works once, so they take turns. */

/** When the login was last renewed, in any tab. Storage is shared also where the Web Locks API is missing. */
const RENEWED_AT = "toolcrib-login-renewed-at";
const MAX_PAUSE = 2_000;

/** The login could not be renewed now. It has not ended. */
export class RefreshFailed extends Error {}

let refreshing: Promise<boolean> | null = null;

/**
 * Renews the login, unless another tab has done so since `failedAt`, when a request with the old one was sent.
 * Returns false if the login has ended. Concurrent callers share one request.
 */
export function refresh(failedAt = Date.now()): Promise<boolean> {
  refreshing ??= withTabLock(() => renewOnce(failedAt)).finally(() => {
    refreshing = null;
  });
  return refreshing;
}

/** Without the Web Locks API (pages over plain HTTP), the server answers the slower tab with 409. */
async function withTabLock(work: () => Promise<boolean>): Promise<boolean> {
  return navigator.locks ? await navigator.locks.request("toolcrib-refresh", work) : work();
}

async function renewOnce(failedAt: number): Promise<boolean> {
  for (let pause = 100; pause <= MAX_PAUSE; pause *= 2) {
    if (renewedAt() > failedAt) return true;
    // `keepalive`: a page that is closed or reloaded meanwhile still gets the next cookie.
    const response = await fetch("/api/v1/auth/refresh", { method: "POST", keepalive: true });
    if (response.ok) {
      localStorage.setItem(RENEWED_AT, String(Date.now()));
      return true;
    }
    if (response.status === 401 || response.status === 403) return false;
    if (response.status !== 409) break;
    // Another tab has just used the cookie, and its response sets the next one.
    await new Promise((done) => setTimeout(done, pause));
  }
  throw new RefreshFailed("The server could not renew your login. Try again in a moment.");
}

function renewedAt(): number {
  return Number(localStorage.getItem(RENEWED_AT) ?? 0);
}
