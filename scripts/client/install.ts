import type { Dispatcher } from 'undici'
import { readIdentity } from './identity/identity.ts'

// The places at which Node's own fetch and undici before 8 look for their dispatcher, and undici 8.
const LEGACY = Symbol.for('undici.globalDispatcher.1')
const CURRENT = Symbol.for('undici.globalDispatcher.2')

type Dispatch = Dispatcher['dispatch']
interface DispatchTarget {
  readonly dispatch: Dispatch
}

/**
 * Sends the requests of this process's global fetch for the gateway's origin through the identity's session,
 * and leaves every other origin to the dispatcher that was there before. A program that sets a global
 * dispatcher of its own afterwards undoes this. Throws one sentence if `directory` is empty or no whole
 * identity.
 */
export async function install(directory: string): Promise<void> {
  if (directory === '') {
    throw new Error('sallyport/register: SALLYPORT_IDENTITY must name an identity directory')
  }
  const identity = readIdentity(directory)
  // Node's own dispatcher appears when its fetch is first touched, and undici would put one of its own in the
  // empty place as it is imported: the other origins must keep what they would have had.
  new Headers()
  const { Dispatcher1Wrapper } = await import('undici')
  const { clientSession } = await import('./signing/session.ts')
  const { origin, dispatcher } = clientSession(identity, { directory })
  put(LEGACY, origin, new Dispatcher1Wrapper(dispatcher))
  put(CURRENT, origin, dispatcher)
}

function put(place: symbol, origin: string, ours: Dispatcher): void {
  // Undici keeps it there, under a name that is registered for all of its copies.
  const others: DispatchTarget | undefined = Reflect.get(globalThis, place)
  if (!others) throw new Error('sallyport/register: this Node has no global dispatcher')
  const dispatch: Dispatch = (options, handler) =>
    URL.parse(String(options.origin))?.origin === origin
      ? ours.dispatch(options, handler)
      : others.dispatch(options, handler)
  // Every other question to a dispatcher goes to the former one.
  const routed = new Proxy(others, {
    get: (target, name) => (name === 'dispatch' ? dispatch : boundTo(target, name)),
  })
  Object.defineProperty(globalThis, place, { value: routed, writable: true })
}

function boundTo(target: object, name: string | symbol): unknown {
  const value: unknown = Reflect.get(target, name)
  return typeof value === 'function' ? value.bind(target) : value
}
