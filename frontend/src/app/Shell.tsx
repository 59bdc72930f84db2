import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { getSession, logout, type Session, type User } from "../api/client";
import icon from "./icon.svg";
import { Link, usePath } from "./router";
import { changeSession } from "./session";
import { chooseTheme, useThemeChoice, type ThemeChoice } from "./theme";

const THEMES: { choice: ThemeChoice; sign: string; title: string }[] = [
  { choice: "auto", sign: "◐", title: "Colours: as the system" },
  { choice: "light", sign: "☀", title: "Colours: light" },
  { choice: "dark", sign: "☾", title: "Colours: dark" },
];

export function Shell({ session, user, children }: { session: Session; user: User; children: ReactNode }) {
  const path = usePath();
  return (
    <div className="shell">
      <header className="topbar">
        <a className="skip-link" href="#main">
          Skip to the content
        </a>
        <Link className="brand" href="/">
          <img src={icon} alt="" />
          Graphsmith
        </Link>
        <nav aria-label="Pages">
          <Link href="/" aria-current={path === "/" || path.startsWith("/graphs") ? "page" : undefined}>
            Graphs
          </Link>
          <Link href="/runs" aria-current={path.startsWith("/runs") ? "page" : undefined}>
            Runs
          </Link>
        </nav>
        <span className="spacer" />
        <ThemeButton />
        <UserMenu user={user} session={session} />
      </header>
      {children}
    </div>
  );
}

export function ThemeButton() {
  const choice = useThemeChoice();
  const at = THEMES.findIndex((theme) => theme.choice === choice);
  const { sign, title } = THEMES[at]!;
  const next = THEMES[(at + 1) % THEMES.length]!;
  return (
    <button type="button" className="quiet icon" title={`${title} (press for: ${next.title.toLowerCase()})`} aria-label={title} onClick={() => chooseTheme(next.choice)}>
      <span aria-hidden="true">{sign}</span>
    </button>
  );
}

function UserMenu({ user, session }: { user: User; session: Session }) {
  const [open, setOpen] = useState(false);
  const menu = useRef<HTMLDivElement>(null);
  const queries = useQueryClient();
  useEffect(() => {
    if (!open) return;
    const close = (event: Event) => {
      if (event instanceof KeyboardEvent ? event.key === "Escape" : !menu.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, [open]);
  return (
    <div className="menu" ref={menu}>
      <button type="button" className="quiet" aria-expanded={open} aria-haspopup="true" onClick={() => setOpen(!open)}>
        {user.username} <span aria-hidden="true">▾</span>
      </button>
      {open && (
        <div>
          <p className="small muted">
            {session.local ? "Signed in as this machine’s user." : "Signed in."} Graphsmith {session.version}
          </p>
          <Link href="/account" onClick={() => setOpen(false)}>
            Account, password, API keys
          </Link>
          {user.is_staff && <a href="/admin/">Users (administration)</a>}
          <button
            type="button"
            onClick={() => {
              void logout()
                .then(getSession)
                .then((next) => changeSession(queries, next));
            }}
          >
            Sign out
          </button>
        </div>
      )}
    </div>
  );
}
