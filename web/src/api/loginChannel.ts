/** Tells the other tabs of this browser that the person has logged in or out. */

type LoginChange = "logged-in" | "logged-out";

const channel = new BroadcastChannel("toolcrib-login");

export function announceLogin(change: LoginChange): void {
  channel.postMessage(change);
}

/** Calls the listener when the person logs in or out in another tab. */
export function onLoginElsewhere(listener: (change: LoginChange) => void): () => void {
  const receive = ({ data }: MessageEvent<LoginChange>) => listener(data);
  channel.addEventListener("message", receive);
  return () => channel.removeEventListener("message", receive);
}
