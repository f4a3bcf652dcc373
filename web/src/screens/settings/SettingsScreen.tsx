/** The settings of a workspace, in sections. */
import { Suspense } from "react";
import { Link, Redirect, useRoute } from "wouter";
import type { ScreenProps } from "../../app/screenProps";
import { Page } from "../../components/Page";
import { Skeleton } from "../../components/Skeleton";
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
            className="border-b-2 border-transparent px-3 py-2 whitespace-nowrap text-muted hover:text-ink aria-[current]:border-accent aria-[current]:font-medium aria-[current]:text-accent"
          >
            {label}
          </Link>
        ))}
      </nav>
      <div className="min-h-0 grow">
        <Page key={section.name} title={section.label} label={section.label} about={section.about}>
          <Suspense fallback={<Skeleton what={section.label} />}>
            <View workspaceId={workspaceId} />
          </Suspense>
        </Page>
      </div>
    </div>
  );
}
