/** A question from an agent: a form of one to four items, or a plan review. Who only reads sees it as text. */
import { MessageCircleQuestion } from "lucide-react";
import { type FormEvent, type ReactNode, useState } from "react";
import { ApiError } from "../api/client";
import { useMayWrite } from "../app/workspaces";
import { Button } from "../components/Button";
import { EXACT } from "../components/Code";
import { ErrorNote } from "../components/ErrorNote";
import { escaped } from "../components/shownText";
import type { Item } from "../events/messages";
import { ItemControl } from "./ItemControl";
import { initialAnswer, isPlanReview, optionsOf, planNamed } from "./items";
import { PlanReview } from "./PlanReview";
import { type Answers, useAnswer } from "./pausedCalls";

interface Props {
  workspaceId: string;
  pauseId: string;
  items: readonly Item[];
  /** The plan last written in the session, if known. */
  plan?: string | null;
  /** Show it as text, as to viewers. */
  isReadOnly?: boolean;
}

export function QuestionForm({ isReadOnly = false, ...props }: Props) {
  const mayAnswer = useMayWrite(props.workspaceId) && !isReadOnly;
  return mayAnswer ? <Answering {...props} /> : <QuestionText {...props} />;
}

function Answering({ workspaceId, pauseId, items, plan = null }: Omit<Props, "isReadOnly">) {
  const [answers, setAnswers] = useState<Answers>(() =>
    Object.fromEntries(items.map((item) => [item.name, initialAnswer(item)])),
  );
  const [answeredWithButton, setAnsweredWithButton] = useState<readonly string[]>([]);
  const answer = useAnswer(workspaceId, pauseId);
  const isAlone = items.length === 1;
  const missing = items.filter((item) => answers[item.name] === undefined || answers[item.name] === "");

  function setAnswer(item: Item, value: unknown, isButton: boolean) {
    const all = { ...answers, [item.name]: value };
    const buttons = [...answeredWithButton.filter((name) => name !== item.name), ...(isButton ? [item.name] : [])];
    setAnswers(all);
    setAnsweredWithButton(buttons);
    // The button of the only item submits the form.
    if (isAlone && isButton) answer.mutate({ answers: all, answeredWithButton: buttons });
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    answer.mutate({ answers, answeredWithButton: [...answeredWithButton] });
  }

  return (
    <form onSubmit={submit} aria-label={nameOf(items)} className={CARD}>
      <Content workspaceId={workspaceId} items={items} plan={plan}>
        {items.map((item) => (
          <ItemControl
            key={item.name}
            item={item}
            value={answers[item.name]}
            error={fieldErrorOf(answer.error, item.name)}
            busy={answer.isPending}
            onAnswer={(value, isButton) => setAnswer(item, value, isButton)}
          />
        ))}
        <ErrorNote error={answer.error} />
        {!(isAlone && items[0]?.buttons?.length) && (
          <Button type="submit" variant="primary" busy={answer.isPending} disabled={missing.length > 0}>
            Answer
          </Button>
        )}
      </Content>
    </form>
  );
}

function QuestionText({ workspaceId, items, plan = null }: Omit<Props, "isReadOnly" | "pauseId">) {
  return (
    <section aria-label={nameOf(items)} className={CARD}>
      <Content workspaceId={workspaceId} items={items} plan={plan}>
        {items.map((item) => (
          <div key={item.name}>
            <p className="font-medium whitespace-pre-wrap wrap-anywhere">{item.question}</p>
            <ul className="list-disc pl-6 text-muted">
              {optionsOf(item).map((option) => (
                <li key={option} className={EXACT}>
                  {escaped(option)}
                </li>
              ))}
            </ul>
          </div>
        ))}
        <p className="text-sm text-muted">A member or an owner answers.</p>
      </Content>
    </section>
  );
}

const CARD = "overflow-hidden rounded-xl border border-accent/50 bg-surface shadow-card";

function nameOf(items: readonly Item[]): string {
  return isPlanReview(items) ? "Plan review" : "Question";
}

interface ContentProps extends Pick<Props, "workspaceId" | "items"> {
  plan: string | null;
  children: ReactNode;
}

function Content({ workspaceId, items, plan, children }: ContentProps) {
  const isReview = isPlanReview(items);
  const planPath = isReview ? planNamed(items, plan) : null;
  return (
    <>
      <header className="flex items-center gap-2 border-b border-line bg-accent-soft px-4 py-2">
        <MessageCircleQuestion aria-hidden className="size-4 text-accent" />
        <h3 className="font-semibold">{isReview ? "Plan review" : "The agent has a question"}</h3>
      </header>
      <div className="space-y-4 p-4">
        {planPath && <PlanReview workspaceId={workspaceId} path={planPath} />}
        {children}
      </div>
    </>
  );
}

function fieldErrorOf(error: unknown, name: string): string | undefined {
  if (!(error instanceof ApiError)) return undefined;
  return Object.entries(error.fields).find(([field]) => field === name || field.endsWith(`.${name}`))?.[1];
}
