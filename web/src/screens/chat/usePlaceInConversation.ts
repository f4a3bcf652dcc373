/** Scrolls to the message or the call that the address names: `/chat/{session_id}#{id}`. */
import { type RefObject, useEffect, useRef, useState } from "react";
import type { Item } from "./results/callGroups";

interface List {
  scrollToIndex: (at: number, options: { align: "start" }) => void;
}

/** `follows`: whether the list goes to its end with every new row. */
export function usePlaceInConversation(items: readonly Item[], list: List, follows: RefObject<boolean>): void {
  const wanted = useWantedPlace();
  const reached = useRef("");
  useEffect(() => {
    if (wanted === "" || wanted === reached.current) return;
    const at = items.findIndex((item) => idsOf(item).includes(wanted));
    if (at < 0) return;
    reached.current = wanted;
    follows.current = false;
    list.scrollToIndex(at, { align: "start" });
  }, [items, list, follows, wanted]);
}

/** What the address names. The router announces changes of it by an event. */
function useWantedPlace(): string {
  const [wanted, setWanted] = useState(location.hash.slice(1));
  useEffect(() => {
    const read = () => setWanted(location.hash.slice(1));
    window.addEventListener("pushState", read);
    window.addEventListener("popstate", read);
    return () => {
      window.removeEventListener("pushState", read);
      window.removeEventListener("popstate", read);
    };
  }, []);
  return wanted;
}

/** A closed group stands for its calls. */
function idsOf(item: Item): string[] {
  return item.kind === "group" ? [item.id, ...item.calls.map(({ id }) => id)] : [item.id];
}
