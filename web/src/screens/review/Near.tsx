/** Renders only what is near the visible part of a scrolled area. What is far away keeps its height. */
import {
  createContext,
  type ReactNode,
  startTransition,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";

/** How far from the visible part things are rendered. */
const MARGIN = "400px 0px";

type Listener = (isNear: boolean) => void;

/** One observer for all parts of an area. */
class NearObserver {
  private readonly listeners = new Map<Element, Listener>();
  private observer: IntersectionObserver | null = null;

  start(root: Element): () => void {
    this.observer = new IntersectionObserver(
      (entries) =>
        startTransition(() => {
          for (const one of entries) this.listeners.get(one.target)?.(one.isIntersecting);
        }),
      { root, rootMargin: MARGIN },
    );
    for (const element of this.listeners.keys()) this.observer.observe(element);
    return () => this.observer?.disconnect();
  }

  observe(element: Element, listener: Listener): () => void {
    this.listeners.set(element, listener);
    this.observer?.observe(element);
    return () => {
      this.listeners.delete(element);
      this.observer?.unobserve(element);
    };
  }
}

const Context = createContext<NearObserver | null>(null);

interface AreaProps {
  /** The element that scrolls, once it is there. */
  root: HTMLElement | null;
  children: ReactNode;
}

export function NearArea({ root, children }: AreaProps) {
  const observer = useMemo(() => new NearObserver(), []);
  useEffect(() => (root === null ? undefined : observer.start(root)), [observer, root]);
  return <Context value={observer}>{children}</Context>;
}

interface Props {
  /** The height before it was rendered for the first time, in pixels. */
  estimate: number;
  /** Keep it once it was rendered. */
  isKept?: boolean;
  /** Names the hunks inside, so that one can be found before it is rendered. */
  hunks?: string;
  children: () => ReactNode;
}

export function Near({ estimate, isKept, hunks, children }: Props) {
  const observer = useContext(Context);
  const element = useRef<HTMLDivElement>(null);
  const height = useRef<number | null>(null);
  const [isNear, setIsNear] = useState(false);
  useEffect(() => {
    const shown = element.current;
    if (shown === null || observer === null) return;
    return observer.observe(shown, (near) => {
      // A person may type or select in it.
      if (!near && (isKept || shown.contains(document.activeElement))) return;
      if (!near) height.current = shown.offsetHeight || height.current;
      setIsNear(near);
    });
  }, [observer, isKept]);
  // What is rendered but not yet visible costs no layout.
  const quick = { contentVisibility: "auto", containIntrinsicSize: `auto ${height.current ?? estimate}px` } as const;
  return (
    <div
      ref={element}
      data-hunks={hunks}
      style={isNear ? (isKept ? undefined : quick) : { height: height.current ?? estimate }}
    >
      {isNear && children()}
    </div>
  );
}
