/** The rows of a conversation. Renders only visible rows, and follows new ones at the end. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown } from "lucide-react";
import { useCallback, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Button } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { Loading } from "../../components/Loading";
import type { Conversation } from "../../events/conversation";
import { RowView } from "./RowView";
import { CallGroupHeader } from "./results/CallGroupHeader";
import { type CallGroup, groupedRows, type Item } from "./results/callGroups";
import { useToggled } from "./results/toggledRows";
import { usePlaceInConversation } from "./usePlaceInConversation";

/** Distance to the end, in pixels, that counts as the end. */
const NEAR = 80;

interface Props {
  workspaceId: string;
  sessionId: string;
  conversation: Conversation;
}

export function ConversationList({ workspaceId, sessionId, conversation }: Props) {
  const { order, rows, runs, plan, isLoaded } = conversation;
  const scroll = useRef<HTMLDivElement>(null);
  const [isAtEnd, setIsAtEnd] = useState(true);
  const follows = useRef(true);
  const toggled = useToggled((state) => state.open);
  const items = useMemo(
    () => groupedRows({ order, rows }, (group) => isGroupOpen(group, toggled)),
    [order, rows, toggled],
  );
  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroll.current,
    // Other functions than before would make it compute all positions again.
    getItemKey: useCallback((at: number) => items[at]?.id ?? at, [items]),
    estimateSize: useCallback((at: number) => estimate(items[at]), [items]),
    overscan: 6,
    paddingStart: 16,
    paddingEnd: 16,
  });
  usePlaceInConversation(items, virtual, follows);
  const height = virtual.getTotalSize();

  const toEnd = useCallback(() => {
    const element = scroll.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, []);

  // The height changes with every measured row and every delta.
  // biome-ignore lint/correctness/useExhaustiveDependencies: see above
  useLayoutEffect(() => {
    if (follows.current) toEnd();
  }, [height, toEnd]);

  function scrolled() {
    const element = scroll.current;
    if (element === null) return;
    follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
    setIsAtEnd(follows.current);
  }

  if (!isLoaded && order.length === 0)
    return (
      <div className="grow">
        <Loading what="conversation" />
      </div>
    );
  return (
    <div className="relative min-h-0 grow">
      <div
        ref={scroll}
        onScroll={scrolled}
        tabIndex={0}
        role="log"
        aria-label="Conversation"
        aria-live="off"
        className="h-full overflow-y-auto"
      >
        {order.length === 0 && <Empty title="No messages yet">Send the first message below.</Empty>}
        <div className="relative mx-auto max-w-3xl" style={{ height }}>
          {virtual.getVirtualItems().map((item) => {
            const row = items[item.index];
            return (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                className={`absolute top-0 left-0 w-full px-3 pb-3 ${row?.kind === "message" ? "" : "sm:pl-12"}`}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                {row?.kind === "group" ? (
                  <CallGroupHeader group={row} isOpen={isGroupOpen(row, toggled)} />
                ) : (
                  row && (
                    <RowView
                      workspaceId={workspaceId}
                      sessionId={sessionId}
                      row={row}
                      run={row.runId ? runs[row.runId] : undefined}
                      plan={plan}
                    />
                  )
                )}
              </div>
            );
          })}
        </div>
      </div>
      {!isAtEnd && (
        <Button small onClick={toEnd} className="absolute bottom-2 left-1/2 -translate-x-1/2 rounded-full shadow-card">
          <ArrowDown aria-hidden className="size-3.5" /> Jump to latest
        </Button>
      )}
    </div>
  );
}

/** Who opened one of its calls before it became part of the group still sees that call. */
function isGroupOpen(group: CallGroup, toggled: Readonly<Record<string, boolean>>): boolean {
  return toggled[group.id] ?? group.calls.some((call) => toggled[call.id]);
}

function estimate(row: Item | undefined): number {
  if (row?.kind !== "message") return 52;
  return 40 + 22 * Math.ceil(row.text.length / 90);
}
