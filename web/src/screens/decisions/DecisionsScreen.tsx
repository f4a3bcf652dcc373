import { Empty } from "../../parts/Empty";

export default function DecisionsScreen() {
  return <Empty title="Decisions">This screen is being built.</Empty>;
}
