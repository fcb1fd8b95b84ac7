#!/bin/bash
# Runs once, chrooted, after the packages are installed: the agent's user, its first home, an office profile and a browser
# without dialogs.
set -eu
export LANG=C.UTF-8 LC_ALL=C.UTF-8
getent passwd user >/dev/null || useradd --create-home --uid 1000 --shell /bin/bash user
getent passwd screen >/dev/null || useradd --no-create-home --uid 1001 --shell /usr/sbin/nologin screen
mkdir -p /opt/evolver/skel /opt/evolver/inside /harness /evidence /run/screen
chown 1000:1000 /opt/evolver/skel
skel=/opt/evolver/skel
as_user() { setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=$skel "$@"; }

printf 'a,b\n' >/tmp/first.csv
as_user soffice --headless --norestore --convert-to xlsx --outdir /tmp /tmp/first.csv >/dev/null 2>&1
test -s /tmp/first.xlsx
rm -f /tmp/first.*
profile=$skel/.config/libreoffice/4/user/registrymodifications.xcu
item() { echo "<item oor:path=\"$1\"><prop oor:name=\"$2\" oor:op=\"fuse\"><value>$3</value></prop></item>"; }
{
  grep -v -e '</oor:items>' -e ooSetupFactoryWindowAttributes "$profile"
  common=/org.openoffice.Office.Common
  item $common/Misc FirstRun false
  item $common/Misc ShowTipOfTheDay false
  item $common/Misc CollectUsageInformation false
  item $common/Save/Document WarnAlienFormat false
  item /org.openoffice.Setup/Product ooSetupLastVersion 99.9
  item /org.openoffice.Setup/Product LastTimeDonateShown 4102444800
  item /org.openoffice.Setup/Product LastTimeGetInvolvedShown 4102444800
  item /org.openoffice.Office.Recovery/AutoSave Enabled false
  item /org.openoffice.Office.Recovery/RecoveryInfo Enabled false
  item "/org.openoffice.Office.Jobs/Jobs/org.openoffice.Office.Jobs:Job['UpdateCheck']/Arguments" AutoCheckEnabled false
  item /org.openoffice.Office.Impress/Misc/Start EnableSdremote false
  item /org.openoffice.Office.Impress/Misc/New AutoPilot false
  # What is typed is what the document holds: nothing is corrected, completed or formatted while it is typed.
  for aid in UseReplacementTable TwoCapitalsAtStart CapitalAtStartSentence SetInetAttribute ChangeOrdinalNumber ChangeDash \
    AddNonBreakingSpace TransliterateRTL ChangeAngleQuotes CorrectAccidentalCapsLock ReplaceSingleQuote ReplaceDoubleQuote; do
    item $common/AutoCorrect $aid false
  done
  item /org.openoffice.Office.Writer/AutoFunction/Format/ByInput Enable false
  item /org.openoffice.Office.Writer/AutoFunction/Completion Enable false
  item /org.openoffice.Office.Calc/Input AutoInput false
  echo '</oor:items>'
} >/tmp/profile.xcu
mv /tmp/profile.xcu "$profile"

# The browser: the sandbox is the container, so it brings none of its own; its start asks nothing; AT-SPI sees its pages.
cat >/etc/chromium.d/evolver <<'FLAGS'
export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox --test-type --no-first-run --no-default-browser-check \
--hide-crash-restore-bubble --disable-dev-shm-usage --disable-gpu --password-store=basic --disable-component-update \
--disable-background-networking --force-renderer-accessibility"
# A profile that came with a lock of another machine, or of a browser that is dead, would raise a question or not start.
profile="${XDG_CONFIG_HOME:-$HOME/.config}/chromium"
for argument in "$@"; do
  case "$argument" in --user-data-dir=*) profile="${argument#*=}" ;; esac
done
holder=$(readlink "$profile/SingletonLock" || true)
if [ "${holder%-*}" != "$(uname -n)" ] || ! grep -q chromium "/proc/${holder##*-}/cmdline" 2>/dev/null; then
  rm -f "$profile"/Singleton*
fi
FLAGS
find /usr/lib/chromium/locales -name '*.pak*' ! -name 'en-US*' -delete

mkdir -p $skel/Desktop $skel/Documents $skel/Downloads $skel/.config/{openbox,gtk-3.0,pcmanfm/default,libfm} $skel/.local/share
sed -e 's#<keyboard>#<keyboard><rebindOnMappingNotify>no</rebindOnMappingNotify>#' \
  -e 's#</applications>#<application type="normal" class="*office*"><maximized>yes</maximized></application><application type="normal" name="libreoffice*"><maximized>yes</maximized></application><application type="normal" class="Chromium*" role="browser"><maximized>yes</maximized></application></applications>#' \
  /etc/xdg/openbox/rc.xml >$skel/.config/openbox/rc.xml
printf '[Settings]\ngtk-cursor-blink=0\ngtk-enable-animations=0\ngtk-recent-files-enabled=0\n' >$skel/.config/gtk-3.0/settings.ini
printf 'gtk-cursor-blink=0\n' >$skel/.gtkrc-2.0
printf '[*]\nwallpaper_mode=color\nwallpaper_common=1\ndesktop_bg=#2f4a5e\ndesktop_fg=#ffffff\ndesktop_shadow=#000000\ndesktop_font=Sans 11\nshow_wm_menu=0\nsort=name;ascending;\nshow_documents=0\nshow_trash=0\nshow_mounts=0\n' \
  >$skel/.config/pcmanfm/default/desktop-items-0.conf
printf '[config]\nbm_open_method=0\n[ui]\nshow_hidden=0\n' >$skel/.config/pcmanfm/default/pcmanfm.conf
printf '[config]\nsingle_click=0\nquick_exec=0\nthumbnail_local=1\nthumbnail_max=1\n[ui]\nshow_thumbnail=0\nbig_icon_size=48\n' >$skel/.config/libfm/libfm.conf
printf 'XDG_DESKTOP_DIR="$HOME/Desktop"\nXDG_DOCUMENTS_DIR="$HOME/Documents"\nXDG_DOWNLOAD_DIR="$HOME/Downloads"\n' >$skel/.config/user-dirs.dirs
apps='[Default Applications]\n'
for mime in text/html application/xhtml+xml x-scheme-handler/http x-scheme-handler/https; do apps+="$mime=chromium.desktop\n"; done
for mime in text/plain text/markdown application/json text/x-log text/x-python application/xml application/x-shellscript; do apps+="$mime=org.xfce.mousepad.desktop\n"; done
for mime in text/csv application/vnd.openxmlformats-officedocument.spreadsheetml.sheet application/vnd.ms-excel application/vnd.oasis.opendocument.spreadsheet; do apps+="$mime=libreoffice-calc.desktop\n"; done
for mime in application/vnd.openxmlformats-officedocument.wordprocessingml.document application/msword application/vnd.oasis.opendocument.text application/rtf; do apps+="$mime=libreoffice-writer.desktop\n"; done
for mime in application/vnd.openxmlformats-officedocument.presentationml.presentation application/vnd.ms-powerpoint application/vnd.oasis.opendocument.presentation; do apps+="$mime=libreoffice-impress.desktop\n"; done
printf "$apps" >$skel/.config/mimeapps.list
rm -rf $skel/.cache
chown -R 1000:1000 $skel
chmod -R a+rX $skel  # outside Docker the agent is another user of the host than the one who owns these
python3 -m compileall -q /usr/lib/python3/dist-packages /opt/evolver/site || true
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/*.log /tmp/* /usr/share/doc/* /usr/share/man/* /root/.config
