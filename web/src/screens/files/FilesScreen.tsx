import { Empty } from "../../parts/Empty";

export default function FilesScreen() {
  return <Empty title="Files">This screen is being built.</Empty>;
}
