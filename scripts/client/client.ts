// All that an application may import of `sallyport/client`. `index.ts` loads it.
export { VERSION as version } from '../../proxy/boot/version.ts'
export { createFetch, type Fetch, type FetchOptions } from './create-fetch.ts'
export {
  type ByocaOptions,
  type Enrolled,
  type EnrollOptions,
  enrollByoca,
  enrollSpiffe,
  mint,
  type SpiffeOptions,
} from './enroll.ts'
export { type Identity, readIdentity } from './identity/identity.ts'
export { GatewayRefusal } from './refusal.ts'
