import { asked } from './database.ts'
import { atCommit } from './link.ts'
import type { Replica } from './replicas.ts'
import type { Stage } from './stage.ts'

/** Something that goes wrong with the database, or with the way to it, and is over at some time. */
export interface Fault {
  /** The id in docs/threats.md: `F-08`. */
  readonly id: string
  readonly what: string
  readonly begin: () => Promise<void> | void
  readonly end: () => Promise<void> | void
  /** True where every call is refused while it lasts. */
  readonly stopsAll: boolean
  /** True where callers' connections break. */
  readonly losesConnections?: true
  /** True where the database is there and says nothing. */
  readonly isSilent?: true
}

/** The faults of a database that are the same for all replicas. */
export function databaseFaults({ database, replicas }: Stage): readonly Fault[] {
  const { server } = database
  const links = replicas.map(({ link }) => link)
  const each = (tell: (link: (typeof links)[number]) => void) => () => {
    for (const link of links) tell(link)
  }
  const owner = (text: string) => asked(server.url('postgres'), text)
  return [
    {
      id: 'F-08',
      what: 'PostgreSQL is killed (immediate) and started again',
      stopsAll: true,
      begin: () => server.stop('immediate'),
      end: () => server.start(),
    },
    {
      id: 'F-08',
      what: 'PostgreSQL is restarted in order',
      stopsAll: true,
      begin: () => server.stop('fast'),
      end: () => server.start(),
    },
    {
      id: 'F-10',
      what: 'PostgreSQL is frozen, its first process and all others',
      stopsAll: true,
      isSilent: true,
      begin: database.freeze,
      end: database.thaw,
    },
    {
      id: 'F-11',
      what: 'the ways to the database are half-open',
      stopsAll: true,
      isSilent: true,
      begin: each((link) => link.hold()),
      // What a firewall does that forgets: what was under way never comes.
      end: each((link) => {
        link.cut('reset')
        link.release()
      }),
    },
    {
      id: 'F-11',
      what: 'nothing comes through to the database for a while, and then all of it',
      stopsAll: true,
      isSilent: true,
      begin: each((link) => link.hold()),
      end: each((link) => link.release()),
    },
    {
      id: 'F-11',
      what: 'the connections to the database are reset, and new ones refused',
      stopsAll: true,
      begin: each((link) => {
        link.open = false
        link.cut('reset')
      }),
      end: each((link) => {
        link.open = true
      }),
    },
    {
      id: 'F-12',
      what: 'the database takes no more connections',
      stopsAll: true,
      begin: async () => {
        await owner(`alter database ${database.name} allow_connections false`)
        for (const link of links) link.cut('end')
      },
      end: async () => void (await owner(`alter database ${database.name} allow_connections true`)),
    },
  ]
}

/** Those that hit some calls and not others: each is one that comes again and again while it lasts. */
export function connectionFaults({ replicas }: Stage): readonly Fault[] {
  const links = replicas.map(({ link }) => link)
  const clear = (): void => {
    for (const link of links) {
      link.rule = null
      link.delayMs = 0
    }
  }
  const commits = (['nothing', 'half', 'all'] as const).map((passed): Fault => {
    return {
      id: 'F-11',
      what: `connections are reset in the middle of a commit of which the database has got ${passed}`,
      stopsAll: false,
      begin: () => {
        // Not each: a batch that comes again must go through one day.
        let commits = 0
        for (const link of links) link.rule = atCommit(passed, () => ++commits % 10 === 0)
      },
      end: clear,
    }
  })
  return [
    ...commits,
    {
      id: 'F-11',
      what: 'connections are reset after any number of bytes, in either direction',
      stopsAll: false,
      begin: () => {
        for (const link of links)
          link.rule = (_, piece) => (Math.random() < 0.01 ? Math.floor(Math.random() * piece.length) : null)
      },
      end: clear,
    },
    {
      id: 'F-11',
      what: 'the way to the database is slow',
      stopsAll: false,
      begin: () => {
        for (const link of links) link.delayMs = 20
      },
      end: clear,
    },
  ]
}

/** Faults of one gateway, chosen anew each time. `random`: from 0 to 1. */
export function replicaFaults(replicas: readonly Replica[], random: () => number): readonly Fault[] {
  let victim: Replica | undefined
  const chosen = (): Replica => {
    victim = replicas[Math.floor(random() * replicas.length)]
    if (!victim) throw new Error('there is none')
    return victim
  }
  return [
    {
      id: 'F-02',
      what: 'a gateway is killed and started again',
      stopsAll: false,
      losesConnections: true,
      begin: () => chosen().kill(),
      end: async () => victim?.start(),
    },
    {
      id: 'F-30',
      what: 'a gateway is stopped in order and started again',
      stopsAll: false,
      losesConnections: true,
      begin: async () => void (await chosen().stop()),
      end: async () => victim?.start(),
    },
    {
      id: 'F-25',
      what: 'a gateway stands still for a while',
      stopsAll: false,
      begin: () => chosen().signal('SIGSTOP'),
      end: () => victim?.signal('SIGCONT'),
    },
  ]
}
