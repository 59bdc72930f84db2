import { useSyncExternalStore } from "react";

export type ThemeChoice = "auto" | "dark" | "light";

const KEY = "graphsmith-theme";
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set<() => void>();
let choice: ThemeChoice = stored();

function stored(): ThemeChoice {
  const value = localStorage.getItem(KEY);
  return value === "dark" || value === "light" ? value : "auto";
}

function apply(): void {
  document.documentElement.dataset.theme = effective();
  for (const watcher of watchers) watcher();
}

function effective(): "dark" | "light" {
  if (choice === "auto") return prefersDark.matches ? "dark" : "light";
  return choice;
}

export function startTheme(): void {
  prefersDark.addEventListener("change", apply);
  apply();
}

export function chooseTheme(next: ThemeChoice): void {
  choice = next;
  if (next === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  apply();
}

function subscribe(callback: () => void): () => void {
  watchers.add(callback);
  return () => watchers.delete(callback);
}

export function useThemeChoice(): ThemeChoice {
  return useSyncExternalStore(subscribe, () => choice);
}

/** The theme in force; canvases read their colours again when it changes. */
export function useTheme(): "dark" | "light" {
  return useSyncExternalStore(subscribe, effective);
}

const cache = new Map<string, string>();

/** A colour of the style sheet, for canvases. */
export function colour(name: string): string {
  const key = `${effective()} ${name}`;
  let value = cache.get(key);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    cache.set(key, value);
  }
  return value;
}
