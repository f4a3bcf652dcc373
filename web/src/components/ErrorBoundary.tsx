import { Component, type ReactNode } from "react";
import { Button } from "./Button";
import { ErrorNote } from "./ErrorNote";

/** Shows the error of a screen in its place. The rest of the page keeps working. */
export class ErrorBoundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <div className="space-y-3 p-4">
        <ErrorNote error={this.state.error} />
        <Button onClick={() => location.reload()}>Reload page</Button>
      </div>
    );
  }
}
