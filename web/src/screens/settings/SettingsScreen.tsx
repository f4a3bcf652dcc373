/** The settings of a workspace, in sections. */
import { Suspense } from "react";
import { Link, Redirect, useRoute } from "wouter";
import type { ScreenProps } from "../../app/screenProps";
import { Loading } from "../../components/Loading";
import { SECTIONS } from "./sections";

export default function SettingsScreen({ workspaceId }: ScreenProps) {
  const [, at] = useRoute("/w/:workspaceId/settings/:section?");
  const section = SECTIONS.find((one) => one.name === at?.section);
  if (section === undefined) return <Redirect to={`/w/${workspaceId}/settings/${SECTIONS[0]?.name}`} replace />;
  const View = section.view;
  return (
    <div className="flex h-full flex-col">
      <nav
        aria-label="Settings sections"
        className="flex shrink-0 gap-1 overflow-x-auto border-b border-line bg-surface px-3 pt-1"
      >
        {SECTIONS.map(({ name, label }) => (
          <Link
            key={name}
            href={`/w/${workspaceId}/settings/${name}`}
            aria-current={name === section.name ? "page" : undefined}
            className="border-b-2 border-transparent px-2.5 py-2 whitespace-nowrap text-muted hover:text-ink aria-[current]:border-accent aria-[current]:font-medium aria-[current]:text-accent"
          >
            {label}
          </Link>
        ))}
      </nav>
      <div className="min-h-0 grow overflow-y-auto" tabIndex={0} role="region" aria-label={section.label}>
        <div className="mx-auto max-w-4xl space-y-5 p-4">
          <header>
            <h1 className="text-lg font-semibold">{section.label}</h1>
            <p className="text-muted">{section.about}</p>
          </header>
          <Suspense fallback={<Loading what={section.label} />}>
            <View workspaceId={workspaceId} />
          </Suspense>
        </div>
      </div>
    </div>
  );
}
