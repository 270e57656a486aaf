/**
 * The forms of well-known services' tokens, as data. Most of it is taken from gitleaks' rules (`config/gitleaks.toml`, Copyright (c)
 * 2019 Zachary Rice, MIT License), reduced to what each token begins with: redaction may take more than a scanner reports, and lengths
 * change. The rest is from the services' own documentation.
 */
import { words } from '../util/text/words.ts';

/** Behind each of these, sixteen letters and digits or more make a token. */
export const PLAIN_PREFIXES =
  words(`AKCp cmVmd ABSK LTAI EZAK EZTK EAAC EAAM AGE-SECRET-KEY-1 AGE-PLUGIN- CLOJARS_ AKIA ASIA ABIA ACCA p8e-
  ico- pul- pnu_ rdme_ rubygems_ pplx- PMAK- PMAT- doo_v1_ dop_v1_ dor_v1_ dp.pt. dp.ct. dp.sa. dp.scim.
  dp.audit. dt0c01. dt0s01. ghp_ gho_ ghu_ ghs_ ghr_ npm_ hf_ api_org_ glc_ glsa_ glptt- lin_api_ lin_oauth_
  ntn_ shpat_ shpca_ shppa_ shpss_ sm_aat_ sm_pat_ sm_sat_ shippo_live_ shippo_test_ sntryu_ sntrys_
  ATBB ATOA CCIPAT_ CCIPRJ_ bkua_ cflt gsk_ xai- r8_ csk-
  fw_ llx- jina_ e2b_ fc- phc_ phx_ phs_ sbp_ nfp_ nfc_ napi_ rnd_ NRAK- NRBR-
  cio wandb_v1_ vck_ vcp_ vca_ vci_ lsv2_pt_ lsv2_sk_ lsv2_ kagi_ rk_live_ rk_test_ pk_live_ HRKU-AA
  mlsn. rpa_ crsr_ dtn_ ddp_ ddw_ squ_ sqp_ sqa_ AKLT tfp_ sgp_ sgd_
  slk_ n8n_api_ retool_01 retool_wk_ shptka_ alcht_ STS.N hcaik_ hcamk_
  hcalk_ unkey_ cal_live_ polar_oat_ polar_pat_ os_v2_app_ os_v2_org_ xau_ CCDB1_
  packagist_ora_ packagist_ort_ packagist_out_ packagist_urt_ packagist_uut_ xprv nsec1 suiprivkey1 hf_oauth_ pnb_ bkaa_ bkct_ lin_wh_ ddo_ vtwn_ gb_api_ rca_
  eyJrIjoi nyk_v0_ xnd_production_ xnd_development_ mka_ dG9rO apk_user_ opk_ aio_ chpt_ zpka_ esecret_ hxtp_
  depot_org_ depot_project_ tpuf_ dls_ endr+ b3BlbnNzaC1rZXktdjEAAAAA NRJS- cfsk_ma_prod_ cfsk_ma_test_ testsk_ dub_ lip_ z_1dWlkIjoi s-s4t2ud- s-s4t2af-
  sgp_local_ bb_test_ pylf_v1_us_ pylf_v1_eu_ nbp_ KGAT_ jsrp_ jsrd_ sgamp_user_ AGE-SECRET-KEY-PQ-1 CfDJ8 cog_ ucat_ GOOG1E`);

/** Behind each of these, a token may have other characters between its letters as well. */
export const MIXED_PREFIXES: readonly string[] = [
  'FlyV1 ',
  ...words(`sk- sk_ pk- pk_ rk- rk_ github_pat_ pawlc_ ops_eyJ bedrock-api-key- duffel_live_ duffel_test_ fio-u- FLWSECK-
  FLWSECK_TEST- glcbt- gldt- glffct- glft- glimt- glagent- gloas- glpat- glrt- glrtr- glsoat- GR1348941
  pscale_tkn_ pscale_oauth_ pscale_pw_ pypi-AgE tk-us- tk-eu- xkeysib- xsmtpsib- tskey- fo1_ fm1a_ fm1r_ fm2_
  hvs. hvb. hvr. sha256~ sq0atp- SG. sb_secret_ sb_publishable_ GOCSPX- ya29. AIza AQ.Ab 1//0 xoxb- xoxa-
  xoxp- xoxe- xoxe. xoxo- xoxr- xoxs- xoxc- xoxd- xapp- HRKU- pat-na1- pat-na2- pat-eu1- pat-ap1- APP_USR- vercel_blob_rw_ ory_st_ ory_pat_
  ory_at_ mdb_sa_sk_ cfut_ cfat_ cfk_ apify_api_ dd_pat_ ddapp_ ddpat_ ukey_
  glwt- xaat- xapt- pdl_live_ pdl_sdbx_ pdl_ntfset_ xwfp- wk-1. WPL_AP1. dp.st. secret-live- secret-test- Mid-server-
  figd_ figo_ figu_ sq0csp- AQVN dckr_pat_ dckr_oat_ ATATT3 ATCTT3 NRII- nvapi- tgp_v1_ CFPAT- IQoJb3JpZ2lu FwoGZXIvYXdz
  AVNS_ whsec_ EAAA dbtc_ dbtu_ dbts_ IGQV IGAA bb_live_ sktsec_ essu_
  pcsk_ tvly- ctx7sk- dnkey- tr_pat_ snyk_uat. signkey- ovsxp_ ovsxat_ t1.9euelZ bce-v3/ALTAK- tr_prod_ tr_dev_ tr_stg_`),
];

/** A word begins here, also behind a line break as JSON writes it. */
export const WORD_START = '(?:(?<![A-Za-z0-9])|(?<=\\\\[nrtbf]))';
const atStart = (form: RegExp) => new RegExp(`${WORD_START}${form.source}`, 'g');

/** Tokens that begin like ordinary text, so the whole form is matched. Each form contains its `hint`. */
export const TOKEN_FORMS: readonly (readonly [hint: string, form: RegExp])[] = [
  ['A3-', atStart(/A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}\b/)],
  ['dapi', atStart(/dapi[a-f0-9]{32}(?:-\d)?/)],
  ['pat', atStart(/pat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b/)],
  ['pat.', atStart(/pat\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}/)],
  ['sat.', atStart(/sat\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}/)],
  ['sk-lm-', atStart(/sk-lm-[\w-]{6,}:[\w-]{16,}/)],
  // A key of Zhipu's models, and of Ollama's service.
  ['.', atStart(/[a-f0-9]{32}\.(?:[A-Za-z0-9]{16}|[\w-]{24})\b/)],
  ['A3T', atStart(/A3T[A-Z0-9][A-Z2-7]{16}\b/)],
  ['4b1d', atStart(/4b1d[A-Za-z0-9]{38}\b/)],
  ['API-', atStart(/API-[A-Z0-9]{26}\b/)],
  ['SK', atStart(/SK[0-9a-f]{32}\b/)],
  ['s.', atStart(/s\.(?=[A-Za-z]{0,24}\d)[A-Za-z0-9]{24}\b/)],
  ['Q~', /[\w.~]{3}\dQ~[\w.~-]{31,34}/g],
  ['_mmk', atStart(/[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b/)],
  ['key_', atStart(/key_(?:[a-f0-9]{28}|(?:[a-f0-9]{64}){1,2})\b/)],
  ['re_', atStart(/re_(?=\w{0,40}\d)[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,30}\b/)],
  ['BSA', atStart(/BSA(?=[A-Z-_]{0,28}[a-z\d])[\w-]{28}(?![\w-])/)],
  ['ak_', atStart(/ak_(?=[A-Za-z]{0,20}\d)[A-Za-z0-9]{20,40}\b/)],
  ['ak-', atStart(/ak-(?=[A-Za-z]{0,22}\d)[A-Za-z0-9]{22}\b/)],
  ['as-', atStart(/as-(?=[A-Za-z]{0,22}\d)[A-Za-z0-9]{22}\b/)],
  ['oy2', atStart(/oy2[a-z0-9]{43}\b/)],
  ['AKID', atStart(/AKID[A-Za-z0-9]{28,36}\b/)],
  ['SSWS', atStart(/SSWS [\w-]{20,}/)],
  ['YC', atStart(/YC(?=[A-Za-z_-]{0,38}\d)[\w-]{38}(?![\w-])/)],
  // A Facebook app's token, also in an address.
  ['|', atStart(/\d{15,16}\|[\w-]{27,40}(?![\w-])/)],
  ['%7C', atStart(/\d{15,16}%7C[\w-]{27,40}(?![\w-])/)],
  // The cookie of a session by itself, and the credentials of a package source in Bundler's variables.
  ['_session=', /\b_\w{1,40}_session=[^\s"'\\;,]{16,}/g],
  [
    'BUNDLE_',
    /BUNDLE_\w{1,60}__\w{1,60}\\{0,31}["']?\s{0,4}[:=]\s{0,4}\\{0,31}["']?[^\s"'\\:]{1,256}:[^\s"'\\]{4,256}/g,
  ],
  ['LLM|', atStart(/LLM\|\d{6,20}\|[\w-]{16,}/)],
  ['/', atStart(/\d\/\d{10,20}(?:\/\d{10,20})?:[a-f0-9]{32}\b/)],
  [':', atStart(/[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}:[a-f0-9]{32}\b/)],
  ['access-', atStart(/access-(?:sandbox|development|production)-[a-f0-9-]{36}\b/)],
  [
    '$',
    /\$(?:2[abxy]\$\d\d\$[\w./]{53}|(?:apr1|[156]|y|argon2(?:id?|d))\$[^\s:"'\\]{20,200})|pbkdf2_sha\d{1,3}\$[^\s:"'\\]{20,200}|SCRAM-SHA-\d{1,3}\$\d{3,7}:[\w+/=$:]{40,}|access_token\$production\$\w{16}\$[a-f0-9]{32}/g,
  ],
  ['.atlasv1.', atStart(/[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}/)],
  // An installation token of a GitHub App, as before 2021.
  ['v1.', atStart(/v1\.[a-f0-9]{40}\b/)],
  ['v', atStart(/v[1-4]\.(?:local|public)\.[\w-]{40,}(?:\.[\w-]+)?/)],
  ['fk-', atStart(/fk-(?=[A-Za-z_-]{0,20}\d)[\w-]{20,}/)],
  // A token of GitHub Copilot.
  ['tid=', atStart(/tid=[a-f0-9]{32};[^\s"'\\]{1,1024}:[a-f0-9]{64}\b/)],
  ['t1.', atStart(/t1\.[\w-]{20,}={0,2}\.[\w-]{86}={0,2}/)],
  [
    '.acc',
    atStart(/(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[\w+/=-]{30,120}/),
  ],
  ['FFFFNRAL', atStart(/[a-fux0-9]{32,36}FFFFNRAL\b/)],
  ['perm', atStart(/perm[:-][A-Za-z0-9=]{4,80}\.[A-Za-z0-9=]{4,80}\.[A-Za-z0-9=]{20,}/)],
  ['bpk-', atStart(/bpk-[a-f0-9]{32}\b/)],
  [':production.', atStart(/[\w*-]{1,60}:production\.[a-f0-9]{56,64}\b/)],
  [':development.', atStart(/[\w*-]{1,60}:development\.[a-f0-9]{56,64}\b/)],
  ['|eyJ2MiI6', /\|eyJ2MiI6[A-Za-z0-9+/]{20,}={0,2}/g],
  ['|', atStart(/[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}\|[\w-]{40,}/)],
  ['ak-', atStart(/ak-[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}-[\w-]{20,}/)],
  ['m0-', atStart(/m0-(?=[A-Za-z]{0,39}\d)[A-Za-z0-9]{40}\b/)],
  ['ck-', atStart(/ck-(?=[A-Za-z]{0,43}\d)[A-Za-z0-9]{43,44}\b/)],
  ['KEY0', atStart(/KEY0[A-F0-9]{31}_[A-Za-z0-9]{22}\b/)],
  ['SCW', atStart(/SCW(?=[A-Z]{0,16}\d)[A-Z0-9]{17}\b/)],
  ['AQE', atStart(/AQE[A-Za-z0-9+/]{60,}={0,2}-[A-Za-z0-9+/]{40,}={0,2}-[^\s"'\\]{8,}/)],
  ['mb_', atStart(/mb_[A-Za-z0-9+/]{43}=/)],
  ['secret-', atStart(/secret-(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{40,}\b/)],
  ['secret_', atStart(/secret_[\w-]{1,60}_[a-f0-9]{32}\.[A-Za-z0-9]{32}\b/)],
  ['live_', atStart(/live_[a-f0-9]{35}\b/)],
  ['test_', atStart(/test_[a-f0-9]{35}\b/)],
  ['live_', atStart(/live_(?=[A-Za-z]{0,29}\d)(?:[A-Za-z0-9]{30}|[A-Za-z0-9]{40})\b/)],
  ['sdk-', atStart(/sdk-[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}\b/)],
  ['api-', atStart(/api-[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}\b/)],
  ['-', atStart(/[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}\b/)],
  ['EAA', atStart(/EAA[A-Z][A-Za-z0-9]{80,}/)],
  ['AAAAAAAAAAAAAAAAAAAAAA', atStart(/A{22}[A-Za-z0-9%]{80,100}\b/)],
  ['v1.0-', atStart(/v1\.0-[a-f0-9]{24}-[a-f0-9]{146}/)],
  ['pa-', atStart(/pa-[A-Za-z0-9_-]{40,48}\b/)],
  ['secret_', atStart(/secret_[A-Za-z0-9]{40,}/)],
  ['key-', atStart(/key-[a-f0-9]{32}\b/)],
  ['-us', atStart(/[a-f0-9]{32}-us\d{1,2}\b/)],
  [':AA', atStart(/(?:bot)?\d{8,10}:AA[\w-]{32,33}/)],
  [':A', atStart(/(?:bot)?\d{5,16}:A[\w-]{34}(?![\w-])/)],
  ['k.', atStart(/[pst]k\.[A-Za-z0-9]{60}\.[A-Za-z0-9]{22}\b/)],
  ['.', atStart(/[MNO][A-Za-z\d_-]{23,27}\.[\w-]{6}\.[\w-]{27,40}/)],
  ['hooks.slack.com', /hooks\.slack\.com\/(?:services|workflows|triggers)\/[\w+/]{20,}/g],
  ['.make.com/', /hook\.[a-z\d.]{2,12}\.make\.com\/[a-z\d]{20,}/g],
  ['hooks.zapier.com', /hooks\.zapier\.com\/hooks\/catch\/\d{1,12}\/\w{5,20}/g],
  ['/api/webhooks/', /\/api\/webhooks\/\d{16,20}\/[\w-]{40,}/g],
  ['webhookb2', /\.webhook\.office\.com\/webhookb2\/[\w@/-]{40,}/g],
  ['.infura.io/v3/', /\.infura\.io\/v3\/[a-f0-9]{32}/g],
  ['.alchemy.com/v2/', /\.alchemy\.com\/v2\/[\w-]{20,}/g],
  ['/bot/v2/hook/', /\/bot\/v2\/hook\/[a-f0-9-]{36}/g],
  ['!A', atStart(/00D[A-Za-z0-9]{12,15}!A[\w.]{60,}/)],
  [':APA91b', atStart(/[\w-]{11,22}:APA91b[\w-]{100,}/)],
  ['_secret_', atStart(/(?:pi|seti|src)_[A-Za-z0-9]{10,60}_secret_[A-Za-z0-9]{20,}/)],
  ['sl.', atStart(/sl\.(?:u\.)?[\w-]{100,}/)],
  ['st.', atStart(/st\.[a-f0-9]{24}\.[a-f0-9]{32}\.[a-f0-9]{32}\b/)],
  ['==', atStart(/0\.[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}\.[A-Za-z0-9]{30}:[\w+/]{22}==/)],
  ['ATTA', atStart(/ATTA[a-f0-9]{64,}/)],
  ['eyJhIjoi', atStart(/eyJhIjoi[A-Za-z0-9+/]{80,}={0,2}/)],
  // The private members of a JSON Web Key, and the bytes of a wallet's key.
  ['kty', /(?<="(?:d|k|p|q|dp|dq|qi)\\{0,7}"\s{0,4}:\s{0,4}\\{0,7}")[\w-]{22,}(?=\\{0,7}")/g],
  ['AC', atStart(/AC[a-f0-9]{32}:[a-f0-9]{32}\b/)],
  ['ek_', atStart(/ek_[a-f0-9]{32}\b/)],
  // Azure's keys hold a mark of their service.
  ['AZDO', atStart(/[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}\b/)],
  ['JQQJ99', atStart(/[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{26}\b/)],
  ...azureForms(76, '==', ['+ASt', '+ABa', '+AMC', 'APIM', 'ACDb']),
  ...azureForms(33, '=', ['+ASb', '+AEh', '+ARm', 'AIoT', 'AzCa']),
  ['AzSe', atStart(/[A-Za-z0-9]{42}AzSe[A-Za-z0-9]{6}\b/)],
  ['+ACR', atStart(/[A-Za-z0-9+/]{42}\+ACR[A-Za-z0-9]{6}\b/)],
  ['AzFu', atStart(/[A-Za-z0-9+/_-]{44}AzFu[A-Za-z0-9+/_-]{6}==/)],
  ['ZXlK', atStart(/ZXlK[A-Za-z0-9/_+-]{40,}={0,2}/)],
];

/** Services whose keys look like any other text of letters and digits: one is a secret behind the service's name. */
const SERVICES =
  words(`adafruit airtable algolia asana beamer bitbucket bittrex codecov coinbase confluence confluent contentful cloudflare
  datadog discord droneci dropbox etsy fastly finicity finnhub flickr freshbooks gitter heroku hubspot intercom artifactory jfrog
  kraken kucoin launchdarkly linkedin looker mailgun mattermost meraki messagebird netlify nytimes okta plaid privateai rapidapi sendbird
  sentry snyk sourcegraph squarespace sumologic sumo_access travis trello twitch twitter yandex zendesk`).join('|');
export const SERVICE_HINT = new RegExp(SERVICES, 'i');
export const SERVICE_KEYS = new RegExp(
  `((?:${SERVICES})[\\w .-]{0,20}[\\\\"']{0,4}\\s{0,3}(?:=>|:=|[:=])\\s{0,3}[\\\\"']{0,4})(?=[\\w/+-]{0,128}[a-z]\\d)(?=[\\w/+-]{0,128}\\d[a-z])(?!/)(?:[\\w/+=-]{32,256}|[a-z0-9]{15,31}={0,2})(?![\\w.:@/-])`,
  'gi',
);

/** Keys with so many characters before the mark of their service, and six behind it. */
function azureForms(length: number, padding: string, marks: readonly string[]): (readonly [string, RegExp])[] {
  return marks.map((mark) => {
    const form = `[A-Za-z0-9+/]{${length}}${mark.replace('+', '[+]')}[A-Za-z0-9+/]{6}${padding}`;
    return [mark, atStart(new RegExp(form))];
  });
}
