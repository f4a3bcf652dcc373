import { Empty } from "../../parts/Empty";

export default function PastScreen() {
  return <Empty title="Past">This screen is being built.</Empty>;
}
