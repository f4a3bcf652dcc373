import { Empty } from "../../parts/Empty";

export default function ChatScreen() {
  return <Empty title="Chat">This screen is being built.</Empty>;
}
