/** What every screen of a workspace receives. */
export interface ScreenProps {
  workspaceId: string;
}
