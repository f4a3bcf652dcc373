export function Logo({ className = "size-8" }: { className?: string }) {
  return <img src="/icon.svg" alt="" className={className} />;
}
