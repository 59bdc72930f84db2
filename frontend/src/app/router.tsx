import { useSyncExternalStore, type AnchorHTMLAttributes, type MouseEvent } from "react";

/** A small router over the History API: paths name pages, the query keeps what is looked at in them. */
const watchers = new Set<() => void>();

function changed(): void {
  for (const watcher of watchers) watcher();
}

window.addEventListener("popstate", changed);

export function navigate(to: string, { replace = false }: { replace?: boolean } = {}): void {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  changed();
}

function subscribe(callback: () => void): () => void {
  watchers.add(callback);
  return () => watchers.delete(callback);
}

export function usePath(): string {
  return useSyncExternalStore(subscribe, () => location.pathname);
}

/** One parameter of the query, and the way to change it without a new entry in the history. */
export function useQuery(name: string): [string | null, (value: string | null) => void] {
  const value = useSyncExternalStore(subscribe, () => new URLSearchParams(location.search).get(name));
  return [value, (next) => setQuery({ [name]: next })];
}

export function setQuery(values: Record<string, string | null>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === null) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), { replace: true });
}

export function Link({ href, onClick, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  return (
    <a
      {...rest}
      href={href}
      onClick={(event: MouseEvent<HTMLAnchorElement>) => {
        onClick?.(event);
        if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        navigate(href);
      }}
    />
  );
}
