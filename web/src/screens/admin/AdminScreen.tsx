import { Empty } from "../../parts/Empty";

export default function AdminScreen() {
  return <Empty title="Admin">This screen is being built.</Empty>;
}
